package telemetry

import (
	"crypto/tls"
	"strings"
)

// VersionName is Envoy's name of a TLS version, such as TLSv1.3.
func VersionName(v uint16) string { return strings.ReplaceAll(tls.VersionName(v), "TLS ", "TLSv") }

// CipherName is OpenSSL's name of a cipher suite, which Envoy's logs show.
func CipherName(id uint16) string {
	switch id { // of TLS 1.3: nearly all, and without the list that crypto/tls makes to look through
	case tls.TLS_AES_128_GCM_SHA256:
		return "TLS_AES_128_GCM_SHA256"
	case tls.TLS_AES_256_GCM_SHA384:
		return "TLS_AES_256_GCM_SHA384"
	case tls.TLS_CHACHA20_POLY1305_SHA256:
		return "TLS_CHACHA20_POLY1305_SHA256"
	}
	name := strings.TrimPrefix(tls.CipherSuiteName(id), "TLS_")
	name = strings.Replace(name, "_WITH_", "_", 1)
	name = strings.ReplaceAll(name, "AES_128", "AES128")
	name = strings.ReplaceAll(name, "AES_256", "AES256")
	if strings.Contains(name, "CHACHA20_POLY1305") {
		name = strings.TrimSuffix(name, "_SHA256")
	}
	name = strings.TrimPrefix(name, "RSA_")
	name = strings.Replace(name, "_CBC_", "_", 1)
	return strings.ReplaceAll(name, "_", "-")
}

// CurveName is BoringSSL's name of a key exchange group.
func CurveName(c tls.CurveID) string {
	switch c {
	case tls.CurveP256:
		return "P-256"
	case tls.CurveP384:
		return "P-384"
	case tls.CurveP521:
		return "P-521"
	}
	return c.String()
}
