package tlsconn

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"

	"sluice/internal/gcm"
)

// half is one direction of TLS 1.3 record protection (RFC 8446 section 5).
type half struct {
	aead   gcm.AEAD
	iv     [12]byte
	nonce  [12]byte
	seq    uint64
	secret []byte
	suite  uint16
	kind   [1]byte // of the record that is being sealed
}

// newHalf derives the keys of a traffic secret. Only the AES suites are here;
// others stay on crypto/tls.
func newHalf(suite uint16, secret []byte) (*half, error) {
	h := &half{suite: suite}
	return h, h.rekey(secret)
}

// owns reports whether this package protects records of a suite itself.
func owns(suite uint16) bool {
	return suite == tls.TLS_AES_128_GCM_SHA256 || suite == tls.TLS_AES_256_GCM_SHA384
}

func (h *half) rekey(secret []byte) error {
	size := 16
	if h.suite == tls.TLS_AES_256_GCM_SHA384 {
		size = 32
	}
	key, err := h.expand(secret, "key", size)
	if err != nil {
		return err
	}
	iv, err := h.expand(secret, "iv", len(h.iv))
	if err != nil {
		return err
	}
	if h.aead, err = gcm.New(key); err != nil {
		return err
	}
	copy(h.iv[:], iv)
	h.secret, h.seq = secret, 0
	return nil
}

// next moves to the following traffic secret (section 7.2).
func (h *half) next() error {
	s, err := h.expand(h.secret, "traffic upd", len(h.secret))
	if err != nil {
		return err
	}
	return h.rekey(s)
}

// expand is HKDF-Expand-Label with an empty context (section 7.1).
func (h *half) expand(secret []byte, label string, n int) ([]byte, error) {
	newHash := func() hash.Hash { return sha256.New() }
	if h.suite == tls.TLS_AES_256_GCM_SHA384 {
		newHash = func() hash.Hash { return sha512.New384() }
	}
	info := append([]byte{byte(n >> 8), byte(n), byte(6 + len(label))}, "tls13 "+label...)
	out, err := hkdf.Expand(newHash, secret, string(append(info, 0)), n)
	if err != nil {
		return nil, fmt.Errorf("deriving %s: %w", label, err)
	}
	return out, nil
}

func (h *half) nextNonce() []byte {
	h.nonce = h.iv
	binary.BigEndian.PutUint64(h.nonce[4:], binary.BigEndian.Uint64(h.iv[4:])^h.seq)
	h.seq++
	return h.nonce[:]
}

// seal appends one record of at most maxPlain bytes.
func (h *half) seal(dst []byte, kind byte, p []byte) []byte {
	n := len(p) + 1 + h.aead.Overhead()
	at := len(dst)
	dst = append(slices.Grow(dst, headerLen+n), recordData, 3, 3, byte(n>>8), byte(n))
	h.kind[0] = kind
	return h.aead.SealWith(dst, h.nextNonce(), p, h.kind[:], dst[at:])
}

// open decrypts one whole record to dst, which begins before it and may overlap
// it, and gives its inner type. On failure the sequence number is as before.
func (h *half) open(dst, rec []byte) (kind byte, p []byte, ok bool) {
	p, err := h.aead.OpenDown(dst[:0], h.nextNonce(), rec[headerLen:], rec[:headerLen])
	if err != nil {
		h.seq--
		return 0, nil, false
	}
	for len(p) > 0 {
		if kind = p[len(p)-1]; kind != 0 {
			return kind, p[:len(p)-1], true
		}
		p = p[:len(p)-1] // padding
	}
	return 0, nil, true
}
