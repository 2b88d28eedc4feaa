package weather

import (
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	waiters   = 5000
	deafPeers = 1000
)

// silentUpstream asks an upstream that never answers, and again after each 504.
// One more client does the same and tells how long that takes.
func silentUpstream(path string) func(facts, func(), <-chan struct{}) error {
	ask := []byte("GET " + path + " HTTP/1.1\r\nhost: a\r\n\r\n")
	return func(f facts, up func(), over <-chan struct{}) error {
		c, err := gather(waiters, crowdPace, viaHTTP, string(ask), false)
		defer c.leave()
		if err != nil {
			return err
		}
		up()
		longest := make(chan time.Duration)
		go func() { longest <- witness(string(ask), over) }()
		var b [1024]byte
		c.rounds(over, 2*time.Second, func(_, fd int) {
			n, err := unix.Read(fd, b[:])
			switch {
			case err == unix.EAGAIN:
				return
			case n > 0 && strings.HasPrefix(string(b[:n]), "HTTP/1.1 504 "):
				f["504"]++
			default:
				f["other ends"]++
			}
			unix.Write(fd, ask)
		})
		f["longest wait in ms"] = int((<-longest).Milliseconds())
		return nil
	}
}

// witness asks until over is closed and gives the longest wait for an answer, 0
// when there was none.
func witness(ask string, over <-chan struct{}) (longest time.Duration) {
	c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(subject+viaHTTP))
	if err != nil {
		return 0
	}
	go func() { <-over; c.Close() }()
	var b [1024]byte
	for {
		began := time.Now()
		io.WriteString(c, ask)
		if _, err := c.Read(b[:]); err != nil {
			return longest
		}
		longest = max(longest, time.Since(began))
	}
}

// deafUpstream sends bodies to an upstream that reads nothing.
func deafUpstream(f facts, up func(), over <-chan struct{}) error {
	c, err := gather(deafPeers, crowdPace, viaHTTP, "POST /deaf HTTP/1.1\r\nhost: a\r\ncontent-length: 1073741824\r\n\r\n", false)
	defer c.leave()
	if err != nil {
		return err
	}
	up()
	body := make([]byte, 16<<10)
	c.rounds(over, 250*time.Millisecond, func(_, fd int) {
		n, err := unix.Write(fd, body)
		switch {
		case n > 0:
			f["written"] += n
		case err == unix.EAGAIN:
			f["pushed back"]++
		default:
			f["other ends"]++
		}
	})
	f["connections"] = len(c)
	return nil
}
