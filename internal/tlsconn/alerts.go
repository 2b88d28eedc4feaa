package tlsconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
)

// Alert codes (RFC 8446 section 6).
const (
	alertClose       = 0
	alertUnexpected  = 10
	alertBadMAC      = 20
	alertOverflow    = 22
	alertHandshake   = 40
	alertBadCert     = 42
	alertUnsupported = 43
	alertRevoked     = 44
	alertExpired     = 45
	alertCertUnknown = 46
	alertIllegal     = 47
	alertUnknownCA   = 48
	alertVersion     = 70
	alertInternal    = 80
	alertCanceled    = 90
)

// Kind sorts handshake failures the way Envoy counts them.
type Kind uint8

// The kinds of Error.
const (
	Protocol    Kind = iota // ssl.connection_error
	NoCert                  // ssl.fail_verify_no_cert
	VerifyError             // ssl.fail_verify_error
	VerifySAN               // ssl.fail_verify_san
	VerifyHash              // ssl.fail_verify_cert_hash
	Timeout
	Gone     // the peer left, or the connection was closed
	NoSecret // no certificate or validation context yet
)

// Error is a failed handshake or a broken record. Its text is Envoy's transport
// failure reason; Cause, if there is one, is crypto/tls's word.
type Error struct {
	Kind  Kind
	Text  string
	Cause error
	alert byte
}

func (e *Error) Error() string { return e.Text }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// boring writes an error the way BoringSSL's queue reads in Envoy's logs.
func boring(reason int, name, more string) string {
	s := fmt.Sprintf("TLS_error:|%d:SSL routines:OPENSSL_internal:%s", 16<<24|reason, name)
	if more != "" {
		s += ":" + more
	}
	return s + ":TLS_error_end"
}

func verifyError(kind Kind, alert byte, more string) *Error {
	return &Error{Kind: kind, alert: alert, Text: boring(125, "CERTIFICATE_VERIFY_FAILED", "verify cert failed: "+more)}
}

// chainError is a failure of the certificate chain at a depth.
func chainError(alert byte, depth int, reason string) *Error {
	return verifyError(VerifyError, alert, fmt.Sprintf("X509_verify_cert: certificate verification error at depth %d: %s", depth, reason))
}

// alertName is BoringSSL's name of a received alert.
func alertName(code byte) string {
	return map[byte]string{
		10: "SSLV3_ALERT_UNEXPECTED_MESSAGE", 20: "SSLV3_ALERT_BAD_RECORD_MAC", 21: "TLSV1_ALERT_DECRYPTION_FAILED",
		22: "TLSV1_ALERT_RECORD_OVERFLOW", 40: "SSLV3_ALERT_HANDSHAKE_FAILURE", 41: "SSLV3_ALERT_NO_CERTIFICATE",
		42: "SSLV3_ALERT_BAD_CERTIFICATE", 43: "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE", 44: "SSLV3_ALERT_CERTIFICATE_REVOKED",
		45: "SSLV3_ALERT_CERTIFICATE_EXPIRED", 46: "SSLV3_ALERT_CERTIFICATE_UNKNOWN", 47: "SSLV3_ALERT_ILLEGAL_PARAMETER",
		48: "TLSV1_ALERT_UNKNOWN_CA", 49: "TLSV1_ALERT_ACCESS_DENIED", 50: "TLSV1_ALERT_DECODE_ERROR",
		51: "TLSV1_ALERT_DECRYPT_ERROR", 70: "TLSV1_ALERT_PROTOCOL_VERSION", 71: "TLSV1_ALERT_INSUFFICIENT_SECURITY",
		80: "TLSV1_ALERT_INTERNAL_ERROR", 86: "TLSV1_ALERT_INAPPROPRIATE_FALLBACK", 109: "TLSV1_UNSUPPORTED_EXTENSION",
		112: "TLSV1_UNRECOGNIZED_NAME", 116: "TLSV13_ALERT_CERTIFICATE_REQUIRED", 120: "TLSV1_ALERT_NO_APPLICATION_PROTOCOL",
	}[code]
}

func remoteAlert(code byte) *Error {
	name := alertName(code)
	if name == "" {
		name = fmt.Sprintf("ALERT_%d", code)
	}
	return &Error{Text: boring(1000+int(code), name, "")}
}

func localAlert(code byte, what string) *Error {
	name, reason := "UNEXPECTED_MESSAGE", 223
	switch code {
	case alertBadMAC:
		name, reason = "DECRYPTION_FAILED_OR_BAD_RECORD_MAC", 130
	case alertOverflow:
		name, reason = "ENCRYPTED_LENGTH_TOO_LONG", 147
	case alertInternal:
		name, reason = "INTERNAL_ERROR", 68
	}
	return &Error{alert: code, Text: boring(reason, name, ""), Cause: errors.New(what)}
}

// byText maps what crypto/tls says to BoringSSL's reasons. Its errors
// have no types, so the texts are compared; a test keeps them true.
func byText(text string) (name string, reason int, ok bool) {
	for _, x := range [...]struct {
		part, name string
		reason     int
	}{
		{"no cipher suite supported by both", "NO_SHARED_CIPHER", 184},
		{"no ECDHE curve supported by both", "NO_SHARED_GROUP", 266},
		{"no key exchanges supported by both", "NO_SHARED_GROUP", 266},
		{"only unsupported versions", "UNSUPPORTED_PROTOCOL", 240},
		{"unsupported protocol version", "UNSUPPORTED_PROTOCOL", 240},
		{"unsupported SSLv2", "WRONG_VERSION_NUMBER", 247},
		{"does not look like a TLS handshake", "WRONG_VERSION_NUMBER", 247},
		{"error decoding message", "CLIENTHELLO_PARSE_FAILED", 131},
		{"unexpected message", "UNEXPECTED_MESSAGE", 223},
		{"received unexpected handshake message", "UNEXPECTED_MESSAGE", 223},
		{"bad record MAC", "DECRYPTION_FAILED_OR_BAD_RECORD_MAC", 130},
		{"record overflow", "ENCRYPTED_LENGTH_TOO_LONG", 147},
	} {
		if strings.Contains(text, x.part) {
			return x.name, x.reason, true
		}
	}
	return "", 0, false
}

// asError turns a handshake error of crypto/tls into ours.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var a tls.AlertError
	if errors.As(err, &a) {
		x := remoteAlert(byte(a))
		x.Cause = err
		return x
	}
	text := err.Error()
	if strings.Contains(text, "client didn't provide a certificate") {
		return &Error{Kind: NoCert, Cause: err, Text: boring(192, "PEER_DID_NOT_RETURN_A_CERTIFICATE", "peer did not provide required client certificate")}
	}
	if code, ok := alertByText(text); ok {
		x := remoteAlert(code)
		x.Cause = err
		return x
	}
	if name, reason, ok := byText(text); ok {
		return &Error{Text: boring(reason, name, ""), Cause: err}
	}
	return &Error{Text: "TLS_error:|" + text + ":TLS_error_end", Cause: err}
}

// alertByText finds the code of "remote error: tls: ...": the alert's type is
// not exported outside QUIC, but its texts are those of tls.AlertError.
func alertByText(text string) (byte, bool) {
	_, what, ok := strings.Cut(text, "remote error: ")
	if !ok {
		return 0, false
	}
	for code := range 256 {
		if tls.AlertError(code).Error() == what {
			return byte(code), true
		}
	}
	return 0, false
}

func isHTTP(b []byte) bool {
	for _, m := range []string{"GET ", "POST ", "HEAD ", "PUT "} {
		if strings.HasPrefix(string(b), m) {
			return true
		}
	}
	return false
}
