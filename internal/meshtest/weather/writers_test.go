package weather

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	slowHead = "GET /quick HTTP/1.1\r\nhost: a\r\nx-slow: "
	slowBody = "POST /patience HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n"
)

// slowWriters begin a request and add a byte of it now and then, until they are
// told 408; then they begin anew.
func slowWriters(start string) func(facts, func(), <-chan struct{}) error {
	return func(f facts, up func(), over <-chan struct{}) error {
		c, err := gather(crowdSize(), crowdPace, viaHTTP, start, false)
		defer c.leave()
		if err != nil {
			return err
		}
		up()
		var b [1024]byte
		c.rounds(over, 2*time.Second, func(i, fd int) {
			n, err := unix.Read(fd, b[:])
			if err == unix.EAGAIN {
				unix.Write(fd, []byte("y"))
				return
			}
			if n > 0 && strings.HasPrefix(string(b[:n]), "HTTP/1.1 408 ") {
				f["408"]++
			} else {
				f["other ends"]++
			}
			unix.Close(fd)
			if c[i], err = connect(subject + viaHTTP); err != nil {
				f["refused"]++
			}
			unix.Write(c[i], []byte(start))
		})
		return nil
	}
}
