package conform

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"time"
)

// suiteIDs are the cipher suites of cases by OpenSSL's names.
var suiteIDs = map[string]uint16{
	"AES128-GCM-SHA256":             tls.TLS_RSA_WITH_AES_128_GCM_SHA256,
	"AES256-GCM-SHA384":             tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
	"ECDHE-ECDSA-AES128-SHA":        tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA,
	"ECDHE-ECDSA-AES128-GCM-SHA256": tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	"ECDHE-ECDSA-AES256-GCM-SHA384": tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	"ECDHE-ECDSA-CHACHA20-POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	"ECDHE-RSA-AES128-GCM-SHA256":   tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	"ECDHE-RSA-AES256-GCM-SHA384":   tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
}

// alertNames are OpenSSL's reasons for a received alert, which records hold.
var alertNames = map[uint64]string{
	10: "SSLV3_ALERT_UNEXPECTED_MESSAGE", 20: "SSLV3_ALERT_BAD_RECORD_MAC", 22: "TLSV1_ALERT_RECORD_OVERFLOW",
	40: "SSLV3_ALERT_HANDSHAKE_FAILURE", 42: "SSLV3_ALERT_BAD_CERTIFICATE", 43: "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
	44: "SSLV3_ALERT_CERTIFICATE_REVOKED", 45: "SSLV3_ALERT_CERTIFICATE_EXPIRED", 46: "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
	47: "SSLV3_ALERT_ILLEGAL_PARAMETER", 48: "TLSV1_ALERT_UNKNOWN_CA", 49: "TLSV1_ALERT_ACCESS_DENIED",
	50: "TLSV1_ALERT_DECODE_ERROR", 51: "TLSV1_ALERT_DECRYPT_ERROR", 70: "TLSV1_ALERT_PROTOCOL_VERSION",
	71: "TLSV1_ALERT_INSUFFICIENT_SECURITY", 80: "TLSV1_ALERT_INTERNAL_ERROR", 90: "TLSV1_ALERT_USER_CANCELLED",
	109: "TLSV13_ALERT_MISSING_EXTENSION", 110: "TLSV1_UNSUPPORTED_EXTENSION", 112: "TLSV1_UNRECOGNIZED_NAME",
	116: "TLSV13_ALERT_CERTIFICATE_REQUIRED", 120: "TLSV1_ALERT_NO_APPLICATION_PROTOCOL",
}

// alertWord is the reason of an alert. Package tls keeps the alert's type to
// itself; it is a number.
func alertWord(e *net.OpError) string {
	v := reflect.ValueOf(e.Err)
	if v.Kind() != reflect.Uint8 {
		return "ERROR"
	}
	name := alertNames[v.Uint()]
	switch {
	case name == "":
		return fmt.Sprintf("ALERT_%d", v.Uint())
	case e.Op == "local error": // our own judgement has no alert in its name
		return strings.TrimPrefix(strings.TrimPrefix(name, "SSLV3_ALERT_"), "TLSV1_ALERT_")
	}
	return name
}

// tlsWord is the reason of a failure that was found on our side, empty when it
// is none of TLS.
func tlsWord(err error) string {
	var header tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &header), errors.Is(err, errWrongVersion):
		return "WRONG_VERSION_NUMBER"
	case errors.As(err, &verify), errors.As(err, &authority), errors.As(err, &invalid):
		return "CERTIFICATE_VERIFY_FAILED"
	}
	for part, word := range map[string]string{
		"client didn't provide a certificate": "PEER_DID_NOT_RETURN_A_CERTIFICATE",
		"unexpected message":                  "UNEXPECTED_MESSAGE",
		"unexpected handshake message":        "UNEXPECTED_MESSAGE",
		"unsupported version":                 "UNSUPPORTED_PROTOCOL",
		"no cipher suite supported":           "NO_SHARED_CIPHER",
	} {
		if strings.Contains(err.Error(), part) {
			return word
		}
	}
	if strings.Contains(err.Error(), "tls: ") {
		return "ERROR"
	}
	return ""
}

// cutConn sends its first write, the ClientHello, cut into records and writes.
type cutConn struct {
	net.Conn
	how  helloSpec
	done bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.done || len(b) < 5 {
		return c.Conn.Write(b)
	}
	c.done = true
	hello := b
	if c.how.Record > 0 {
		hello = nil
		for body := b[5:]; len(body) > 0; {
			n := min(c.how.Record, len(body))
			hello = binary.BigEndian.AppendUint16(append(hello, b[:3]...), uint16(n))
			hello = append(hello, body[:n]...)
			body = body[n:]
		}
	}
	size := c.how.Bytes
	if size == 0 {
		size = len(hello)
	}
	for len(hello) > 0 {
		n := min(size, len(hello))
		if _, err := c.Conn.Write(hello[:n]); err != nil {
			return 0, err
		}
		hello = hello[n:]
		time.Sleep(millis(c.how.PauseMS))
	}
	return len(b), nil
}
