package h1

import "sluice/internal/httpmsg"

// fault is what is wrong with a message; as an error it never allocates.
type fault uint8

const (
	noFault fault = iota
	codecError
	invalidCharacters
	invalidURL
	invalidScheme
	invalidAuthority
	lowVersion
	tooManyHeaders
	headersTooLarge
	chunkedAndLength
	unexpectedUnderscore
	connectionRejected
	unknownCoding
)

var faults = [...]struct {
	status int
	detail string
}{
	codecError:           {400, "http1.codec_error"},
	invalidCharacters:    {400, "http1.invalid_characters"},
	invalidURL:           {400, "http1.invalid_url"},
	invalidScheme:        {400, "http1.invalid_scheme"},
	invalidAuthority:     {400, "http.invalid_authority"},
	lowVersion:           {426, "low_version"},
	tooManyHeaders:       {431, "http1.too_many_headers"},
	headersTooLarge:      {431, "http1.headers_too_large"},
	chunkedAndLength:     {400, "http1.content_length_and_chunked_not_allowed"},
	unexpectedUnderscore: {400, "http1.unexpected_underscore"},
	connectionRejected:   {400, "http1.connection_header_rejected"},
	unknownCoding:        {501, "http1.invalid_transfer_encoding"},
}

// Error is Envoy's response code detail.
func (f fault) Error() string { return faults[f].detail }

func (f fault) reason() httpmsg.ResetReason {
	r := httpmsg.ResetReason{Kind: httpmsg.ResetProtocolError, Status: faults[f].status, Detail: faults[f].detail}
	if f == tooManyHeaders || f == headersTooLarge {
		r.Kind = httpmsg.ResetHeaderLimit
	}
	return r
}
