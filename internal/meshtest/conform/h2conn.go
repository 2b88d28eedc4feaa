package conform

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
)

// h2Stream is one stream of an h2Conn; its fields are guarded by the connection.
type h2Stream struct {
	id       uint32
	window   int64
	interims [][]pair
	head     []pair
	trailers []pair
	hasHead  bool
	hasTrail bool
	data     []byte
	ended    bool
	reset    any // the code, nil without

	wasReset bool // before the last bytes of the answer went out
}

func (s *h2Stream) over() bool { return s.ended || s.reset != nil }

// h2Options is how an HTTP/2 connection behaves. auto false: no preface,
// SETTINGS, ACK or WINDOW_UPDATE of our own.
type h2Options struct {
	client   bool
	auto     bool
	settings settingList
	onStream func(*h2Conn, *h2Stream) // server: called on a goroutine of its own
}

// h2Conn is an HTTP/2 connection for client and upstream that can also send and
// list broken frames. A reading goroutine fills streams and log.
type h2Conn struct {
	wire *wire
	opts h2Options
	work sync.WaitGroup

	writing sync.Mutex // the encoder's table must see blocks in the order of the wire
	encoder *hpack.Encoder
	table   uint32 // the encoder's table size
	block   bytes.Buffer

	opening sync.Mutex // heads go out in the order of their ids

	state    monitor
	decoder  *hpack.Decoder
	streams  map[uint32]*h2Stream
	log      []*frameLog
	nextID   uint32
	window   int64
	initial  int64
	maxFrame int
	goaway   any
	bad      string
	ready    bool // the peer's SETTINGS came, or nothing will
	stopped  bool

	// the header block under way
	blockStream uint32
	blockFlags  byte
	blockBytes  []byte
}

// newH2 takes over the wire and starts its reader.
func newH2(w *wire, opts h2Options) *h2Conn {
	w.shared = true
	c := &h2Conn{wire: w, opts: opts, streams: map[uint32]*h2Stream{}, nextID: 1, window: 65535, initial: 65535, maxFrame: 16384}
	c.encoder, c.table = hpack.NewEncoder(&c.block), 4096
	c.decoder = hpack.NewDecoder(4096, nil)
	if opts.auto {
		var first []byte
		if opts.client {
			first = []byte(h2Preface)
		}
		c.write(append(first, frame(frameSettings, 0, 0, settingsPayload(opts.settings))...))
	}
	c.work.Go(c.read)
	return c
}

func (c *h2Conn) read() {
	defer func() {
		c.state.Lock()
		c.ready = true
		c.state.notify()
		c.state.Unlock()
	}()
	if !c.opts.client && !c.readPreface() {
		return
	}
	for {
		if ok, err := c.readFrame(); err != nil { // whatever the peer sent, the case goes on and shows it
			c.state.Lock()
			c.bad = err.Error()
			c.state.Unlock()
			return
		} else if !ok {
			return
		}
	}
}

// bytes takes n bytes; nil when the connection ended.
func (c *h2Conn) bytes(n int) []byte {
	for len(c.wire.buf) < n {
		if !c.wire.fill(after(500*time.Millisecond)) && (c.wire.end() != "" || c.isStopped()) {
			return nil
		}
	}
	return c.wire.take(n)
}

func (c *h2Conn) isStopped() bool {
	c.state.Lock()
	defer c.state.Unlock()
	return c.stopped
}

func (c *h2Conn) readPreface() bool {
	got := c.bytes(len(h2Preface))
	if got != nil && string(got) != h2Preface {
		c.state.Lock()
		c.bad = "no preface: " + latin1(got)
		c.state.Unlock()
	}
	return string(got) == h2Preface
}

func (c *h2Conn) readFrame() (bool, error) {
	head := c.bytes(9)
	if head == nil {
		return false, nil
	}
	size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])&0x7fffffff
	payload := []byte{}
	if size > 0 {
		if payload = c.bytes(size); payload == nil {
			return false, nil
		}
	}
	c.state.Lock()
	started, answer, err := c.received(kind, flags, stream, payload)
	stopped := c.stopped
	c.state.notify()
	c.state.Unlock()
	if len(answer) > 0 && c.opts.auto {
		c.write(answer)
	}
	if started != nil && c.opts.onStream != nil {
		c.work.Go(func() { c.opts.onStream(c, started) })
	}
	return !stopped, err
}

// received takes one frame into the state. It returns a stream that the peer
// began and the bytes to answer with.
func (c *h2Conn) received(kind, flags byte, id uint32, p []byte) (started *h2Stream, answer []byte, err error) {
	name := fmt.Sprint(kind)
	if int(kind) < len(frameNames) {
		name = frameNames[kind]
	}
	entry := &frameLog{kind: name, stream: id}
	s := c.streams[id]
	switch kind {
	case frameData:
		answer = c.receivedData(entry, s, flags, p)
	case frameHeaders, frameContinuation:
		if kind == frameHeaders {
			p = unpadded(p, flags)
			if flags&flagPriority != 0 && len(p) >= 5 {
				p = p[5:]
			}
			c.blockStream, c.blockFlags, c.blockBytes = id, flags, nil
		}
		c.blockBytes = append(c.blockBytes, p...)
		if flags&flagEndHeaders == 0 {
			return nil, nil, nil
		}
		started, err = c.receivedHeaders(entry)
	case frameRSTStream:
		entry.more = object{"code": codeName(p)}
		if s != nil {
			s.reset = entry.more["code"]
		}
	case frameSettings:
		answer = c.receivedSettings(entry, flags, p)
	case framePing:
		entry.more = object{"payload": text(p), "ack": flags&flagAck != 0}
		if flags&flagAck == 0 {
			answer = frame(framePing, flagAck, 0, p)
		}
	case frameGoAway:
		if len(p) < 8 {
			return nil, nil, fmt.Errorf("GOAWAY of %d bytes", len(p))
		}
		entry.more = object{"last": int(binary.BigEndian.Uint32(p)), "code": codeName(p[4:8]), "debug": text(p[8:])}
		c.goaway = entry.more["code"]
	case frameWindowUpdate:
		if len(p) != 4 {
			return nil, nil, fmt.Errorf("WINDOW_UPDATE of %d bytes", len(p))
		}
		n := int64(binary.BigEndian.Uint32(p))
		entry.more = object{"increment": int(n)}
		if s != nil {
			s.window += n
		} else if id == 0 {
			c.window += n
		}
	}
	c.addLog(entry)
	return started, answer, err
}

func unpadded(p []byte, flags byte) []byte {
	if flags&flagPadded == 0 || len(p) == 0 || int(p[0]) >= len(p) {
		return p
	}
	return p[1 : len(p)-int(p[0])]
}

func (c *h2Conn) receivedData(entry *frameLog, s *h2Stream, flags byte, p []byte) []byte {
	entry.data, entry.hasData, entry.endStream = unpadded(p, flags), true, flags&flagEndStream != 0
	if s != nil {
		s.data = append(s.data, entry.data...)
		s.ended = s.ended || entry.endStream
	}
	if len(p) == 0 {
		return nil
	}
	grant := number32(uint32(len(p)))
	answer := frame(frameWindowUpdate, 0, 0, grant)
	if !entry.endStream {
		answer = append(answer, frame(frameWindowUpdate, 0, entry.stream, grant)...)
	}
	return answer
}

func (c *h2Conn) receivedHeaders(entry *frameLog) (*h2Stream, error) {
	decoded, err := c.decoder.DecodeFull(c.blockBytes)
	if err != nil {
		return nil, fmt.Errorf("decoding headers: %w", err)
	}
	fields := make([]pair, len(decoded))
	status := ""
	for i, f := range decoded {
		fields[i] = pair{latin1([]byte(f.Name)), latin1([]byte(f.Value))}
		if f.Name == ":status" {
			status = f.Value
		}
	}
	entry.kind, entry.stream, entry.headers, entry.endStream = "HEADERS", c.blockStream, fields, c.blockFlags&flagEndStream != 0
	s, known := c.streams[c.blockStream]
	if !known {
		s = &h2Stream{id: c.blockStream, window: c.initial}
		c.streams[s.id] = s
	}
	switch {
	case s.hasHead:
		s.trailers, s.hasTrail = fields, true
	case c.opts.client && len(status) > 0 && status[0] == '1' && status != "101":
		s.interims = append(s.interims, fields)
	default:
		s.head, s.hasHead = fields, true
	}
	s.ended = s.ended || entry.endStream
	if known || c.opts.client {
		return nil, nil
	}
	return s, nil
}

func (c *h2Conn) receivedSettings(entry *frameLog, flags byte, p []byte) []byte {
	ack := flags&flagAck != 0
	shown := object{}
	for ; len(p) >= 6; p = p[6:] {
		id, value := binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])
		shown[settingName(id)] = int(value)
		if ack {
			continue
		}
		switch id {
		case 1:
			c.limitTable(min(value, 4096))
		case 4:
			for _, s := range c.streams {
				s.window += int64(value) - c.initial
			}
			c.initial = int64(value)
		case 5:
			c.maxFrame = int(value)
		}
	}
	entry.more = object{"ack": ack, "settings": shown}
	if ack {
		return nil
	}
	c.ready = true
	return frame(frameSettings, flagAck, 0, nil)
}

func (c *h2Conn) addLog(entry *frameLog) {
	if n := len(c.log); n > 0 && entry.kind == "DATA" {
		if last := c.log[n-1]; last.kind == "DATA" && last.stream == entry.stream {
			last.data = append(last.data, entry.data...)
			last.endStream = last.endStream || entry.endStream
			return
		}
	}
	if entry.hasData { // joined ones grow: not in the reader's buffer
		entry.data = append([]byte{}, entry.data...)
	}
	c.log = append(c.log, entry)
}

// wait waits until test holds, and ends early when the connection did. It says
// what test says.
func (c *h2Conn) wait(deadline time.Time, test func() bool) bool {
	c.state.Lock()
	defer c.state.Unlock()
	c.state.await(deadline, func() bool { return test() || c.wire.end() != "" || c.bad != "" })
	return test()
}

// rest lets what is under way arrive, for at most d.
func (c *h2Conn) rest(d time.Duration) { c.wait(after(d), func() bool { return false }) }

// done waits for the end of a stream.
func (c *h2Conn) done(s *h2Stream, deadline time.Time) bool { return c.wait(deadline, s.over) }

// closeBy closes the connection and waits for its reader.
func (c *h2Conn) closeBy(how string) {
	c.state.Lock()
	c.stopped = true
	c.state.notify()
	c.state.Unlock()
	c.wire.closeBy(how)
}
