package h2

// Classes of bytes.
const (
	isMethod = 1 << iota
	isHost   // :authority, as nghttp2 and Envoy see it
	isScheme // RFC 3986 section 3.1
	isPath
)

var class = func() (t [256]uint8) {
	for c := range 256 {
		if c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' && c < 0x80 {
			t[c] |= isMethod | isHost | isScheme
		}
		if c > 0x20 && c < 0x7f {
			t[c] |= isPath
		}
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] |= isMethod
	}
	for _, c := range "!$%&'()*+,-.:;=[]_~" {
		t[c] |= isHost
	}
	for _, c := range "+-." {
		t[c] |= isScheme
	}
	return t
}()

func all(b []byte, k uint8) bool {
	for _, c := range b {
		if class[c]&k == 0 {
			return false
		}
	}
	return true
}

func validToken(b []byte) bool     { return len(b) > 0 && all(b, isMethod) }
func validAuthority(b []byte) bool { return all(b, isHost) }
func validScheme(b []byte) bool    { return len(b) > 0 && all(b, isScheme) }
func validPath(b []byte) bool      { return all(b, isPath) }

// status reads three digits, 0 for anything else.
func status(b []byte) int {
	if len(b) != 3 {
		return 0
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// number reads a content-length: digits only, below 2^63; -1 for anything else.
func number(b []byte) int64 {
	if len(b) == 0 {
		return -1
	}
	n := int64(0)
	for _, c := range b {
		if c < '0' || c > '9' || n > (1<<63-1)/10-1 {
			return -1
		}
		n = n*10 + int64(c-'0')
	}
	return n
}
