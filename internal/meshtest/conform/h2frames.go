package conform

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
)

const h2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const (
	frameData = iota
	frameHeaders
	framePriority
	frameRSTStream
	frameSettings
	framePushPromise
	framePing
	frameGoAway
	frameWindowUpdate
	frameContinuation
)

const (
	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 32
)

var (
	frameNames = []string{"DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE", "CONTINUATION"}
	flagBits   = map[string]byte{"END_STREAM": 1, "ACK": 1, "END_HEADERS": 4, "PADDED": 8, "PRIORITY": 32}
	settingIDs = map[string]uint16{"HEADER_TABLE_SIZE": 1, "ENABLE_PUSH": 2, "MAX_CONCURRENT_STREAMS": 3, "INITIAL_WINDOW_SIZE": 4,
		"MAX_FRAME_SIZE": 5, "MAX_HEADER_LIST_SIZE": 6, "ENABLE_CONNECT_PROTOCOL": 8}
	errorCodes = []string{"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
		"REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"}
)

// codeName is an error code as it stands in an outcome: its name, else its number.
func codeName(b []byte) any {
	n := 0
	for _, c := range b {
		n = n<<8 | int(c)
	}
	if n < len(errorCodes) {
		return errorCodes[n]
	}
	return n
}

func settingName(id uint16) string {
	for name, known := range settingIDs {
		if known == id {
			return name
		}
	}
	return strconv.Itoa(int(id))
}

// frame is the bytes of one frame.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	return frameOfLength(kind, flags, stream, payload, len(payload))
}

// frameOfLength announces a length that may be wrong.
func frameOfLength(kind, flags byte, stream uint32, payload []byte, length int) []byte {
	out := make([]byte, 0, 9+len(payload))
	out = append(out, byte(length>>16), byte(length>>8), byte(length), kind, flags)
	out = binary.BigEndian.AppendUint32(out, stream)
	return append(out, payload...)
}

func settingsPayload(list settingList) []byte {
	var out []byte
	for _, s := range list {
		out = binary.BigEndian.AppendUint16(out, s.id)
		out = binary.BigEndian.AppendUint32(out, s.value)
	}
	return out
}

func number32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// built is the bytes of a hand-made frame; stream is used where it names none.
func (c *h2Conn) built(f *frameSpec, stream uint32, folder string) ([]byte, error) {
	switch {
	case f.Raw != nil:
		return f.Raw.in(folder)
	case f.Preface:
		return []byte(h2Preface), nil
	}
	kind := slices.Index(frameNames, f.Type)
	if kind < 0 {
		n, err := strconv.ParseUint(f.Type, 0, 8)
		if err != nil {
			return nil, fmt.Errorf("unknown frame type %q", f.Type)
		}
		kind = int(n)
	}
	payload, err := f.Payload.in(folder)
	if err != nil {
		return nil, err
	}
	if f.Headers != nil {
		payload = append(payload, c.encode(f.Headers)...)
	}
	if f.Settings != nil {
		payload = settingsPayload(f.Settings)
	}
	if f.Increment != nil {
		payload = number32(*f.Increment)
	}
	if f.Code != nil && kind == frameRSTStream {
		payload = number32(codeNumber(*f.Code))
	}
	if f.Code != nil && kind == frameGoAway {
		payload = append(append(number32(f.Last), number32(codeNumber(*f.Code))...), payload...)
	}
	if f.Stream != nil {
		stream = *f.Stream
	}
	length := len(payload)
	if f.Length != nil {
		length = *f.Length
	}
	return frameOfLength(byte(kind), byte(f.Flags), stream, payload, length), nil
}

// frameLog is one received frame, DATA of a stream joined.
type frameLog struct {
	kind      string
	stream    uint32
	headers   []pair
	data      []byte
	hasData   bool
	endStream bool
	more      object // what other kinds hold
}

// shown is the frame as it stands in an outcome.
func (f *frameLog) shown() object {
	out := object{"type": f.kind, "stream": int(f.stream)}
	if n, err := strconv.Atoi(f.kind); err == nil {
		out["type"] = n
	}
	for k, v := range f.more {
		out[k] = v
	}
	switch f.kind {
	case "HEADERS":
		out["headers"], out["end_stream"] = shownPairs(f.headers), f.endStream
	case "DATA":
		out["data"], out["end_stream"] = text(f.data), f.endStream
	}
	return out
}
