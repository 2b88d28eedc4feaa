package conform

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
)

// A TLS 1.2 client by hand, for what package tls does not do: a ClientHello
// without supported_versions (by which Envoy tells what certificates a client can
// read), and sessions resumed by id. It judges nobody: cases look at the server.

const (
	hsClientHello       = 1
	hsServerHello       = 2
	hsNewSessionTicket  = 4
	hsCertificate       = 11
	hsServerKeyExchange = 12
	hsCertRequest       = 13
	hsServerHelloDone   = 14
	hsCertVerify        = 15
	hsClientKeyExchange = 16
	hsFinished          = 20
)

var suites12 = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
}

// session12 is what a TLS 1.2 session is resumed with.
type session12 struct {
	id, ticket, master []byte
	suite              uint16
	peer               *x509.Certificate
	spec               *tlsSpec
}

// handshake12 is a handshake under way.
type handshake12 struct {
	conn         *conn12
	spec         *tlsSpec
	cert         *tls.Certificate
	offered      *session12
	session      session12
	transcript   []byte
	clientRandom []byte
	serverRandom []byte
	alpn         string
	share        []byte // the client's, once the server's came
	secret       []byte // before the master secret
	asked        bool   // for a certificate
	resumed      bool
}

// speaks12 says whether the client by hand can do what the case asks for.
func speaks12(spec *tlsSpec) bool {
	if spec.Max != "1.2" || spec.Verify || spec.Hello != nil || spec.Pad != 0 {
		return false
	}
	for name := range strings.SplitSeq(spec.Ciphers, ":") {
		if name != "" && !slices.Contains(suites12, suiteIDs[name]) {
			return false
		}
	}
	return true
}

func (h *handshake12) do() error {
	if err := h.sendHello(); err != nil {
		return err
	}
	for {
		kind, body, err := h.next()
		if err != nil {
			return err
		}
		switch kind {
		case hsServerHello:
			err = h.serverHello(body)
		case hsCertificate:
			err = h.serverCertificate(body)
		case hsServerKeyExchange:
			err = h.keyExchange(body)
		case hsCertRequest:
			h.asked = true
		case hsServerHelloDone:
			err = h.answer()
		case hsNewSessionTicket:
			if len(body) > 6 {
				h.session.ticket = bytes.Clone(body[6:])
			}
		case hsFinished:
			if h.resumed {
				return h.finish()
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// next is the next handshake message; it goes into the transcript.
func (h *handshake12) next() (byte, []byte, error) {
	m, err := h.conn.message()
	if err != nil {
		return 0, nil, err
	}
	h.transcript = append(h.transcript, m...)
	return m[0], m[4:], nil
}

func (h *handshake12) send(kind byte, body []byte) error {
	m := append([]byte{kind, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	h.transcript = append(h.transcript, m...)
	return h.conn.writeRecord(recordHandshake, m)
}

func vector8(b []byte) []byte  { return append([]byte{byte(len(b))}, b...) }
func vector16(b []byte) []byte { return append([]byte{byte(len(b) >> 8), byte(len(b))}, b...) }

func numbers16(list ...uint16) []byte {
	var out []byte
	for _, n := range list {
		out = binary.BigEndian.AppendUint16(out, n)
	}
	return out
}

func (h *handshake12) sendHello() error {
	h.clientRandom = make([]byte, 32)
	if _, err := rand.Read(h.clientRandom); err != nil {
		return err
	}
	id := []byte{}
	if h.offered != nil {
		if id = h.offered.id; len(h.offered.ticket) > 0 {
			id = h.clientRandom // any id: its echo says that the ticket was taken
		}
	}
	h.session.id = id
	suites := suites12
	if h.spec.Ciphers != "" {
		suites = nil
		for name := range strings.SplitSeq(h.spec.Ciphers, ":") {
			suites = append(suites, suiteIDs[name])
		}
	}
	hello := append([]byte{3, 3}, h.clientRandom...)
	hello = append(hello, vector8(id)...)
	hello = append(hello, vector16(numbers16(append(slices.Clone(suites), 0x00ff)...))...)
	hello = append(hello, 1, 0)
	return h.send(hsClientHello, append(hello, vector16(h.extensions())...))
}

func (h *handshake12) extensions() []byte {
	var out []byte
	add := func(id uint16, body []byte) { out = append(append(out, numbers16(id)...), vector16(body)...) }
	if h.spec.SNI != "" {
		add(0, vector16(append([]byte{0}, vector16([]byte(h.spec.SNI))...)))
	}
	curves := []uint16{uint16(tls.X25519), uint16(tls.CurveP256), uint16(tls.CurveP384)}
	if h.spec.Curve != "" {
		curves = []uint16{map[string]uint16{"X25519": 29, "prime256v1": 23, "secp384r1": 24}[h.spec.Curve]}
	}
	add(10, vector16(numbers16(curves...)))
	add(11, vector8([]byte{0}))
	add(13, vector16(numbers16(0x0403, 0x0503, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501, 0x0601)))
	if len(h.spec.ALPN) > 0 {
		var names []byte
		for _, n := range h.spec.ALPN {
			names = append(names, vector8([]byte(n))...)
		}
		add(16, vector16(names))
	}
	var ticket []byte
	if h.offered != nil {
		ticket = h.offered.ticket
	}
	add(35, ticket)
	return out
}

var errShort = errors.New("tls: a handshake message is too short")

func (h *handshake12) serverHello(b []byte) error {
	if len(b) < 35 || len(b) < 38+int(b[34]) {
		return errShort
	}
	h.serverRandom = bytes.Clone(b[2:34])
	id, rest := bytes.Clone(b[35:35+int(b[34])]), b[35+int(b[34]):]
	h.session.suite = binary.BigEndian.Uint16(rest)
	h.resumed = h.offered != nil && len(id) > 0 && bytes.Equal(id, h.session.id)
	h.session.id = id
	if rest = rest[3:]; len(rest) > 2 {
		rest = rest[2:] // the length of all extensions
	}
	for len(rest) >= 4 {
		kind, n := binary.BigEndian.Uint16(rest), int(binary.BigEndian.Uint16(rest[2:]))
		if len(rest) < 4+n {
			return errShort
		}
		if kind == 16 && n > 3 {
			h.alpn = string(rest[7 : 4+n])
		}
		rest = rest[4+n:]
	}
	if !h.resumed {
		return nil
	}
	h.session.master, h.session.peer, h.session.ticket = h.offered.master, h.offered.peer, h.offered.ticket
	return h.keys()
}

func (h *handshake12) serverCertificate(b []byte) (err error) {
	if len(b) < 6 {
		return errShort
	}
	n := int(b[3])<<16 | int(b[4])<<8 | int(b[5])
	if len(b) < 6+n {
		return errShort
	}
	h.session.peer, err = x509.ParseCertificate(b[6 : 6+n])
	return err
}

// keyExchange answers the server's share with ours.
func (h *handshake12) keyExchange(b []byte) error {
	if len(b) < 4 || len(b) < 4+int(b[3]) {
		return errShort
	}
	curves := map[tls.CurveID]ecdh.Curve{tls.X25519: ecdh.X25519(), tls.CurveP256: ecdh.P256(), tls.CurveP384: ecdh.P384()}
	curve := curves[tls.CurveID(binary.BigEndian.Uint16(b[1:]))]
	if curve == nil {
		return fmt.Errorf("tls: the server chose an unknown curve")
	}
	theirs, err := curve.NewPublicKey(b[4 : 4+int(b[3])])
	if err != nil {
		return err
	}
	ours, err := curve.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	h.share = ours.PublicKey().Bytes()
	h.secret, err = ours.ECDH(theirs)
	return err
}

// answer is our second flight.
func (h *handshake12) answer() error {
	h.conn.hold()
	if h.asked {
		var chain []byte
		if h.cert != nil {
			for _, der := range h.cert.Certificate {
				chain = append(append(chain, byte(len(der)>>16), byte(len(der)>>8), byte(len(der))), der...)
			}
		}
		if err := h.send(hsCertificate, append([]byte{byte(len(chain) >> 16), byte(len(chain) >> 8), byte(len(chain))}, chain...)); err != nil {
			return err
		}
	}
	if err := h.send(hsClientKeyExchange, vector8(h.share)); err != nil {
		return err
	}
	h.session.master = prf(h.hash(), h.secret, "master secret", slices.Concat(h.clientRandom, h.serverRandom), 48)
	if h.asked && h.cert != nil {
		signer := h.cert.PrivateKey.(crypto.Signer)
		algorithm := uint16(0x0401)
		if _, ok := signer.(*ecdsa.PrivateKey); ok {
			algorithm = 0x0403
		}
		sum := sha256.Sum256(h.transcript)
		signature, err := signer.Sign(rand.Reader, sum[:], crypto.SHA256)
		if err != nil {
			return err
		}
		if err := h.send(hsCertVerify, append(numbers16(algorithm), vector16(signature)...)); err != nil {
			return err
		}
	}
	if err := h.keys(); err != nil {
		return err
	}
	if err := h.finish(); err != nil {
		return err
	}
	return h.conn.release()
}

// finish sends ChangeCipherSpec and Finished.
func (h *handshake12) finish() error {
	if err := h.conn.writeRecord(recordChangeCipher, []byte{1}); err != nil {
		return err
	}
	h.conn.sealing = true
	sum := h.hash()()
	sum.Write(h.transcript)
	return h.send(hsFinished, prf(h.hash(), h.session.master, "client finished", sum.Sum(nil), 12))
}

func (h *handshake12) hash() func() hash.Hash {
	if h.strong() {
		return sha512.New384
	}
	return sha256.New
}

func (h *handshake12) strong() bool {
	return h.session.suite == tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 || h.session.suite == tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
}

// keys derives the keys of both directions.
func (h *handshake12) keys() error {
	size := 16
	if h.strong() {
		size = 32
	}
	block := prf(h.hash(), h.session.master, "key expansion", slices.Concat(h.serverRandom, h.clientRandom), 2*size+8)
	return h.conn.setKeys(block[:size], block[2*size:2*size+4], block[size:2*size], block[2*size+4:])
}

// prf is the pseudo-random function of RFC 5246, section 5.
func prf(newHash func() hash.Hash, secret []byte, label string, seed []byte, n int) []byte {
	mac := func(parts ...[]byte) []byte {
		m := hmac.New(newHash, secret)
		for _, p := range parts {
			m.Write(p)
		}
		return m.Sum(nil)
	}
	seed = append([]byte(label), seed...)
	var out []byte
	for a := mac(seed); len(out) < n; a = mac(a) {
		out = append(out, mac(a, seed)...)
	}
	return out[:n]
}
