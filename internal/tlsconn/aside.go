package tlsconn

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
)

// A peer chooses what its chain costs us before we know who it is: crypto/x509
// checks up to a hundred signatures, and one of P-521 takes 3 ms. A coroutine can't
// leave its thread, so a goroutine judges what is long and the coroutine waits.

// maxQuick certificates of a peer are verified by the worker, if their keys are common ones.
const maxQuick = 4

// aside runs f, which looks at the peer's certificates, on a goroutine if that may
// take long. false: the handshake was given up meanwhile, and f may still run.
func (h *handshake) aside(peers []*x509.Certificate, f func()) bool {
	if h.home == &h.pool.away || quick(peers) {
		f()
		return true
	}
	h.judge = f
	h.pool.give(h)
	return h.co.wait()
}

// judged goes on after that, on the worker.
func (h *handshake) judged() {
	h.judge = nil
	h.w.Spare(&h.piece)
}

func quick(peers []*x509.Certificate) bool {
	if len(peers) > maxQuick {
		return false
	}
	for _, c := range peers {
		if slowToVerify(c.PublicKey) {
			return false
		}
	}
	return true
}

// slowToVerify says whether a signature is checked in more than a tenth of a
// millisecond: the standard library has assembly for no curve but P-256.
func slowToVerify(key any) bool {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		return k.Curve.Params().BitSize != 256
	case *rsa.PublicKey:
		return k.N.BitLen() > 4096
	}
	return false
}

// slowToSign is the same of our own key, with a limit of a millisecond. An RSA key is
// slow if rsakey left it to crypto/rsa; the signers that it made aren't.
func slowToSign(key any) bool {
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		return k.Curve.Params().BitSize > 384
	case *rsa.PrivateKey:
		return true
	}
	return false
}
