package weather

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	windowConns   = 10
	windowStreams = 100 // of each
)

// requestBlock is the header block of a GET, in literals.
func requestBlock(path string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", path}} {
		e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return b.Bytes()
}

// openStreams writes the preface, a window for every stream, and n requests.
func openStreams(w io.Writer, n int, window uint32) error {
	if _, err := io.WriteString(w, http2.ClientPreface); err != nil {
		return err
	}
	f := http2.NewFramer(w, nil)
	if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		return err
	}
	if err := f.WriteWindowUpdate(0, 1<<30); err != nil {
		return err
	}
	for i := range n {
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: requestBlock("/flood"), EndStream: true, EndHeaders: true}); err != nil {
			return err
		}
	}
	return nil
}

func greedyStreams(n int) []byte {
	var b bytes.Buffer
	openStreams(&b, n, 1<<31-1) // a buffer takes everything
	return b.Bytes()
}

func pingFrame() []byte {
	var b bytes.Buffer
	http2.NewFramer(&b, nil).WritePing(false, [8]byte{})
	return b.Bytes()
}

// tinyWindows has streams that open their window by one byte, five times a second.
// Their connections come by and by.
func tinyWindows(f facts, up func(), over <-chan struct{}) error {
	var wg sync.WaitGroup
	var got, failed atomic.Int64
	var conns []io.Closer
	for range windowConns {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(subject+viaHTTP))
		if err != nil {
			return err
		}
		conns = append(conns, c)
		if err := openStreams(c, windowStreams, 1); err != nil {
			return fmt.Errorf("opening streams: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
		wg.Go(func() { countData(c, &got, &failed) })
		wg.Go(func() { openBit(c, over) })
	}
	up()
	<-over
	f["bytes"], f["streams reset"] = int(got.Load()), int(failed.Load())
	closeAll(conns)
	wg.Wait()
	return nil
}

func countData(c io.Reader, got, failed *atomic.Int64) {
	for r := http2.NewFramer(nil, c); ; {
		f, err := r.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			got.Add(int64(len(f.Data())))
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			failed.Add(1)
		}
	}
}

func openBit(c io.Writer, over <-chan struct{}) {
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	for {
		b.Reset()
		for i := range windowStreams {
			w.WriteWindowUpdate(uint32(2*i+1), 1)
		}
		select {
		case <-over:
			return
		case <-time.After(200 * time.Millisecond):
		}
		if _, err := c.Write(b.Bytes()); err != nil {
			return
		}
	}
}
