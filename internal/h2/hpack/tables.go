// Package hpack is header compression for HTTP/2 (RFC 7541) without maps,
// strings or allocations in the steady state. Names come with their httpmsg.ID,
// so that a field that repeats is never looked up again.
//
// It knows no frames and no limits of messages; internal/h2 is its only user.
package hpack

import "sluice/internal/httpmsg"

type entry struct {
	name, value []byte
	id          httpmsg.ID
}

const staticLen = 61

// static is RFC 7541 appendix A; index 0 is not used.
var static = func() (t [staticLen + 1]entry) {
	for i, f := range [...][2]string{
		{}, {":authority"}, {":method", "GET"}, {":method", "POST"}, {":path", "/"}, {":path", "/index.html"},
		{":scheme", "http"}, {":scheme", "https"}, {":status", "200"}, {":status", "204"}, {":status", "206"},
		{":status", "304"}, {":status", "400"}, {":status", "404"}, {":status", "500"}, {"accept-charset"},
		{"accept-encoding", "gzip, deflate"}, {"accept-language"}, {"accept-ranges"}, {"accept"},
		{"access-control-allow-origin"}, {"age"}, {"allow"}, {"authorization"}, {"cache-control"},
		{"content-disposition"}, {"content-encoding"}, {"content-language"}, {"content-length"},
		{"content-location"}, {"content-range"}, {"content-type"}, {"cookie"}, {"date"}, {"etag"}, {"expect"},
		{"expires"}, {"from"}, {"host"}, {"if-match"}, {"if-modified-since"}, {"if-none-match"}, {"if-range"},
		{"if-unmodified-since"}, {"last-modified"}, {"link"}, {"location"}, {"max-forwards"},
		{"proxy-authenticate"}, {"proxy-authorization"}, {"range"}, {"referer"}, {"refresh"}, {"retry-after"},
		{"server"}, {"set-cookie"}, {"strict-transport-security"}, {"transfer-encoding"}, {"user-agent"},
		{"vary"}, {"via"}, {"www-authenticate"},
	} {
		t[i] = entry{name: []byte(f[0]), value: []byte(f[1]), id: httpmsg.LookupString(f[0])}
	}
	return t
}()

// staticOf gives the static index of a known name, 0 when there is none.
var staticOf = func() (t [256]uint8) {
	for i := staticLen; i > 0; i-- {
		if id := static[i].id; id != httpmsg.Other {
			t[id] = uint8(i)
		}
	}
	return t
}()

// The static indexes that the encoder names.
const (
	idxAuthority = 1
	idxMethod    = 2
	idxPath      = 4
	idxScheme    = 6
	idxStatus    = 8
)

// codeLen is the length in bits of each byte's Huffman code (appendix B); the
// code is canonical, so the lengths are the code. All ones of 30 bits is EOS.
var codeLen = [256]uint8{
	13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
	28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
	6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
	5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
	13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
	7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
	15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
	6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
	20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
	24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
	22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
	21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
	26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
	19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
	20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
	26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
}
