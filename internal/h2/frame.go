package h2

import "encoding/binary"

// Frame types (RFC 9113 section 6).
const (
	frameData = iota
	frameHeaders
	framePriority
	frameReset
	frameSettings
	framePush
	framePing
	frameGoAway
	frameWindow
	frameContinuation
)

// Flags.
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// Settings.
const (
	settingTableSize   = 1
	settingPush        = 2
	settingMaxStreams  = 3
	settingWindow      = 4
	settingMaxFrame    = 5
	settingConnectProt = 8
)

// Error codes (RFC 9113 section 7).
const (
	CodeNo          = 0
	CodeProtocol    = 1
	CodeInternal    = 2
	CodeFlowControl = 3
	CodeClosed      = 5
	CodeFrameSize   = 6
	CodeRefused     = 7
	CodeCancel      = 8
	CodeCompression = 9
	CodeConnect     = 10
	CodeCalm        = 11
)

const (
	frameHead = 9
	maxFrame  = 16 << 10 // what we take, and the smallest limit a peer may have
	maxWindow = 1<<31 - 1
	preface   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

// fault is a connection error; code noGoAway means that Envoy closes without
// saying why.
type fault struct {
	code   int32
	detail string
	flood  bool
}

const noGoAway = -1

func (f *fault) Error() string { return "http2: " + f.detail }

// Flood reports a peer that went over a limit on its behaviour, which Envoy
// doesn't count as a protocol error.
func (f *fault) Flood() bool { return f.flood }

var (
	faultPreface     = &fault{noGoAway, "bad preface", false}
	faultFrameSize   = &fault{CodeFrameSize, "frame of a wrong size", false}
	faultPadding     = &fault{CodeProtocol, "invalid padding", false}
	faultContinue    = &fault{CodeProtocol, "HEADERS and CONTINUATION out of order", false}
	faultCompression = &fault{CodeCompression, "header compression", false}
	faultStreamID    = &fault{noGoAway, "frame on a wrong stream", false}
	faultClosed      = &fault{CodeClosed, "frame on a closed stream", false}
	faultSettings    = &fault{noGoAway, "setting out of range", false}
	faultWindow      = &fault{noGoAway, "window update out of range", false}
	faultFlow        = &fault{CodeFlowControl, "connection window exceeded", false}
	faultPush        = &fault{noGoAway, "PUSH_PROMISE", false}
	faultMessage     = &fault{noGoAway, "invalid message", false}
	faultStreams     = &fault{noGoAway, "too many streams", false}
	faultOutbound    = &fault{noGoAway, "too many frames in the outbound queue", true}
	faultControl     = &fault{noGoAway, "too many control frames in the outbound queue", true}
	faultEmpty       = &fault{noGoAway, "too many empty frames", true}
	faultPriority    = &fault{noGoAway, "too many PRIORITY frames", true}
	faultUpdates     = &fault{noGoAway, "too many WINDOW_UPDATE frames", true}
	faultResets      = &fault{CodeCalm, "too many early resets", true}
	faultHeaders     = &fault{CodeCalm, "header block without end", false}
)

func appendFrame(b []byte, typ, flags byte, id uint32, n int) []byte {
	return append(b, byte(n>>16), byte(n>>8), byte(n), typ, flags, byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
}

// patchLength writes the length of the frame whose head is at.
func patchLength(b []byte, at int) {
	n := len(b) - at - frameHead
	b[at], b[at+1], b[at+2] = byte(n>>16), byte(n>>8), byte(n)
}

func appendSetting(b []byte, id uint16, v uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, id), v)
}

// unpad takes padding off a DATA or HEADERS payload.
func unpad(flags byte, p []byte) ([]byte, *fault) {
	if flags&flagPadded == 0 {
		return p, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, faultPadding
	}
	return p[1 : len(p)-int(p[0])], nil
}
