package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// h1Load sends GET requests of the shape a browserless client sends, and checks
// status and length of every answer.
func h1Load(s *loadSpec, t *tally, i int, c net.Conn) error {
	req := []byte("GET /api/v1/items?id=42 HTTP/1.1\r\nHost: svc.test\r\nUser-Agent: bench/1\r\nAccept: */*\r\nx-a: b\r\n\r\n")
	r := bufio.NewReaderSize(c, 32<<10)
	return units(s, t, i, func() error {
		if _, err := c.Write(req); err != nil {
			return err
		}
		return readResponse(r, s.Size)
	})
}

func readResponse(r *bufio.Reader, size int) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
		return fmt.Errorf("answer %q", bytes.TrimSpace(line))
	}
	length := -1
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return err
		}
		if len(line) == 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("content-length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	if length != size {
		return fmt.Errorf("answer of %d bytes, want %d", length, size)
	}
	_, err = r.Discard(size)
	return err
}

// HTTP/2 by hand: a pre-encoded header block a request, answers counted by
// END_STREAM. The blocks use only static-table and literal fields without
// indexing, so that no state is needed on either side.

const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway, frameWindow = 0, 1, 3, 4, 6, 7, 8
	flagEnd, flagAck, flagEndHeaders                                                        = 1, 1, 4
	bigWindow                                                                               = 1<<31 - 1
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func frame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

func literal(b []byte, name, value string) []byte {
	b = append(b, 0, byte(len(name)))
	b = append(b, name...)
	b = append(b, byte(len(value)))
	return append(b, value...)
}

// hello is SETTINGS with windows that never close, and the connection's window.
func hello(b []byte) []byte {
	var s []byte
	s = append(s, 0, 4)
	s = binary.BigEndian.AppendUint32(s, bigWindow)
	s = append(s, 0, 3)
	s = binary.BigEndian.AppendUint32(s, 1<<20)
	b = frame(b, frameSettings, 0, 0, s)
	return frame(b, frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, bigWindow-65535))
}

func requestBlock(grpc bool) []byte {
	if !grpc {
		b := []byte{0x82, 0x86} // :method GET, :scheme http
		return literal(literal(literal(b, ":path", "/api/v1/items?id=42"), ":authority", "svc.test"), "user-agent", "bench/1")
	}
	b := []byte{0x83, 0x86}
	b = literal(literal(b, ":path", "/bench.Echo/Unary"), ":authority", "svc.test")
	b = literal(literal(b, "content-type", "application/grpc"), "te", "trailers")
	return literal(literal(b, "user-agent", "grpc-go/1.85.0"), "grpc-timeout", "5S")
}

type h2Client struct {
	c        net.Conn
	r        *bufio.Reader
	out      []byte
	next     uint32
	block    []byte
	body     []byte
	sent     map[uint32]int64
	received int
}

func h2Load(s *loadSpec, t *tally, _ int, c net.Conn) error {
	h := &h2Client{c: c, r: bufio.NewReaderSize(c, 256<<10), next: 1, block: requestBlock(s.Kind == "grpc"), sent: map[uint32]int64{}}
	if s.Kind == "grpc" {
		h.body = make([]byte, 205)
		binary.BigEndian.PutUint32(h.body[1:], 200)
	}
	h.out = hello(append(h.out, preface...))
	for range s.Streams {
		h.open()
	}
	var latency []int64
	defer func() { t.merge(latency, nil) }()
	for {
		if len(h.out) > 0 && h.r.Buffered() == 0 {
			if _, err := c.Write(h.out); err != nil {
				return err
			}
			h.out = h.out[:0]
		}
		stream, err := h.answer()
		if err != nil {
			return err
		}
		if stream == 0 {
			continue
		}
		now := time.Now()
		if t.counts(now) {
			t.units.Add(1)
			latency = append(latency, now.UnixNano()-h.sent[stream])
		}
		delete(h.sent, stream)
		if now.After(t.end) {
			return nil
		}
		h.open()
	}
}

func (h *h2Client) open() {
	flags := byte(flagEndHeaders)
	if h.body == nil {
		flags |= flagEnd
	}
	h.out = frame(h.out, frameHeaders, flags, h.next, h.block)
	if h.body != nil {
		h.out = frame(h.out, frameData, flagEnd, h.next, h.body)
	}
	h.sent[h.next] = time.Now().UnixNano()
	h.next += 2
}

// answer reads one frame and gives the stream that it ended.
func (h *h2Client) answer() (uint32, error) {
	head, err := h.r.Peek(9)
	if err != nil {
		return 0, err
	}
	n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
	_, _ = h.r.Discard(9)
	switch {
	case kind == frameSettings && flags&flagAck == 0:
		h.out = frame(h.out, frameSettings, flagAck, 0, nil)
	case kind == framePing && flags&flagAck == 0:
		p, err := h.r.Peek(n)
		if err != nil {
			return 0, err
		}
		h.out = frame(h.out, framePing, flagAck, 0, p)
	case kind == frameReset:
		return 0, fmt.Errorf("stream %d was reset", stream)
	case kind == frameGoAway:
		return 0, errors.New("GOAWAY")
	case kind == frameData:
		if h.received += n; h.received > 1<<29 {
			h.out = frame(h.out, frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(h.received)))
			h.received = 0
		}
	}
	if _, err := h.r.Discard(n); err != nil {
		return 0, err
	}
	if (kind == frameHeaders || kind == frameData) && flags&flagEnd != 0 {
		return stream, nil
	}
	return 0, nil
}

// serveH1 answers every head with the same bytes.
func serveH1(c net.Conn, size int) error {
	res := append([]byte("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: "+strconv.Itoa(size)+"\r\n\r\n"), make([]byte, size)...)
	buf := make([]byte, 0, 16<<10)
	var out []byte
	for {
		n, err := c.Read(buf[len(buf):cap(buf)])
		if err != nil {
			return err
		}
		buf = buf[:len(buf)+n]
		out = out[:0]
		for {
			i := bytes.Index(buf, []byte("\r\n\r\n"))
			if i < 0 {
				break
			}
			out = append(out, res...)
			buf = append(buf[:0], buf[i+4:]...)
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
	}
}

// serveH2 answers every request that ended.
func serveH2(c net.Conn, size int, grpc bool) error {
	r := bufio.NewReaderSize(c, 256<<10)
	if _, err := io.CopyN(io.Discard, r, int64(len(preface))); err != nil {
		return err
	}
	out := hello(nil)
	block, body := literal(literal([]byte{0x88}, "content-type", "text/plain"), "content-length", strconv.Itoa(size)), make([]byte, size)
	var trailers []byte
	if grpc {
		block = literal([]byte{0x88}, "content-type", "application/grpc")
		body = make([]byte, 200)
		binary.BigEndian.PutUint32(body[1:], 195)
		trailers = literal(nil, "grpc-status", "0")
	}
	received := 0
	for {
		if len(out) > 0 && r.Buffered() == 0 {
			if _, err := c.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
		head, err := r.Peek(9)
		if err != nil {
			return err
		}
		n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		_, _ = r.Discard(9)
		if kind == framePing && flags&flagAck == 0 {
			p, err := r.Peek(n)
			if err != nil {
				return err
			}
			out = frame(out, framePing, flagAck, 0, p)
		}
		if _, err := r.Discard(n); err != nil {
			return err
		}
		if kind == frameSettings && flags&flagAck == 0 {
			out = frame(out, frameSettings, flagAck, 0, nil)
		}
		if kind == frameData {
			if received += n; received > 1<<20 {
				out = frame(out, frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(received)))
				received = 0
			}
		}
		if (kind == frameHeaders || kind == frameData) && flags&flagEnd != 0 {
			out = frame(out, frameHeaders, flagEndHeaders, stream, block)
			if grpc {
				out = frame(out, frameData, 0, stream, body)
				out = frame(out, frameHeaders, flagEndHeaders|flagEnd, stream, trailers)
			} else {
				out = frame(out, frameData, flagEnd, stream, body)
			}
		}
	}
}
