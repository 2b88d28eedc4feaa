package weather

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
)

// floodSize is what one answer of the flood has for a body.
const floodSize = 1 << 30

const floodRequest = "GET /flood HTTP/1.1\r\nhost: a\r\n\r\n"

// floods are upstreams that write as fast as is taken, over all of a maker's
// connections. written counts.
type floods struct{ written atomic.Int64 }

// serve accepts on a port and gives each connection to f, which ends it. Small
// send buffers keep what is under way out of the kernel.
func serve(port int, f func(c net.Conn)) error {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	go func() { // ends with the process
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.(*net.TCPConn).SetWriteBuffer(16 << 10)
			go func() { // ends with the connection
				defer c.Close()
				f(c)
			}()
		}
	}()
	return nil
}

// http answers every request with a gigabyte.
func (f *floods) http() error {
	return serve(floodPort, func(c net.Conn) {
		var ask [1024]byte
		if _, err := c.Read(ask[:]); err != nil {
			return
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n", floodSize)
		f.pour(c)
	})
}

// tcp pours into every connection, unasked.
func (f *floods) tcp() error { return serve(streamPort, f.pour) }

func (f *floods) pour(c net.Conn) {
	body := make([]byte, 16<<10)
	for left := floodSize; left > 0; left -= len(body) {
		n, err := c.Write(body)
		f.written.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func (f *floods) both() error { return errors.Join(f.http(), f.tcp()) }

// serveSilent reads and never answers.
func serveSilent() error {
	return serve(silentPort, func(c net.Conn) {
		var b [512]byte
		for {
			if _, err := c.Read(b[:]); err != nil {
				return
			}
		}
	})
}

// serveDeaf doesn't even read.
func serveDeaf() error {
	return serve(deafPort, func(c net.Conn) { select {} })
}

func closeAll(list []io.Closer) {
	for _, c := range list {
		c.Close()
	}
}
