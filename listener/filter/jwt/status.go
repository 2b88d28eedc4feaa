package jwt

// status is the outcome of a check. Texts and numbers are Envoy's: clients and
// dynamic metadata see them.
type status uint8

const (
	ok status = iota
	missing
	notYetValid
	expired
	badFormat
	badHeaderBase64
	badHeaderJSON
	badAlgorithm
	unknownAlgorithm
	badKeyID
	badPayloadBase64
	badPayloadJSON
	issuerNotString
	subjectNotString
	issuedNotInteger
	issuedOutOfRange
	notBeforeNotInteger
	notBeforeOutOfRange
	expiresNotInteger
	expiresOutOfRange
	idNotString
	audienceNotString
	badSignatureBase64
	badEdLength
	unknownIssuer
	badAudience
	unverified
	noKeys      status = 31
	noKey       status = 32
	fetchFailed status = 40
)

func (s status) text() string {
	switch s {
	case ok:
		return "OK"
	case missing:
		return "Jwt is missing"
	case notYetValid:
		return "Jwt not yet valid"
	case expired:
		return "Jwt is expired"
	case badFormat:
		return "Jwt is not in the form of Header.Payload.Signature with two dots and 3 sections"
	case badHeaderBase64:
		return "Jwt header is an invalid Base64url encoded"
	case badHeaderJSON:
		return "Jwt header is an invalid JSON"
	case badAlgorithm:
		return "Jwt header [alg] field is required and must be a string"
	case unknownAlgorithm:
		return "Jwt header [alg] is not supported"
	case badKeyID:
		return "Jwt header [kid] field is not a string"
	case badPayloadBase64:
		return "Jwt payload is an invalid Base64url encoded"
	case badPayloadJSON:
		return "Jwt payload is an invalid JSON"
	case badSignatureBase64:
		return "Jwt signature is an invalid Base64url encoded"
	case badEdLength:
		return "Jwt ED25519 signature is wrong length"
	case unknownIssuer:
		return "Jwt issuer is not configured"
	case badAudience:
		return "Audiences in Jwt are not allowed"
	case unverified:
		return "Jwt verification fails"
	case noKeys:
		return "Jwks doesn't have any valid public key"
	case noKey:
		return "Jwks doesn't have key to match kid or alg from Jwt"
	case fetchFailed:
		return "Jwks remote fetch is failed"
	}
	return s.claimText()
}

// claimText is text for claims of the wrong type.
func (s status) claimText() string {
	switch s {
	case issuerNotString:
		return "Jwt payload [iss] field is not a string"
	case subjectNotString:
		return "Jwt payload [sub] field is not a string"
	case issuedNotInteger:
		return "Jwt payload [iat] field is not an integer"
	case issuedOutOfRange:
		return "Jwt payload [iat] field is not a positive 64 bit integer"
	case notBeforeNotInteger:
		return "Jwt payload [nbf] field is not an integer"
	case notBeforeOutOfRange:
		return "Jwt payload [nbf] field is not a positive 64 bit integer"
	case expiresNotInteger:
		return "Jwt payload [exp] field is not an integer"
	case expiresOutOfRange:
		return "Jwt payload [exp] field is not a positive 64 bit integer"
	case idNotString:
		return "Jwt payload [jti] field is not a string"
	}
	return "Jwt payload [aud] field is not a string or string list"
}

// tells says how much a failure tells: of several ways that all failed, the one
// that tells most is answered, the last of equals.
func (s status) tells() int {
	switch s {
	case missing:
		return 0
	case unknownIssuer:
		return 1
	}
	return 2
}
