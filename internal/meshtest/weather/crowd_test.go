package weather

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	bundles    = 500  // a second, of a crowd that comes
	crowdPace  = 3000 // connections a second while it comes
	crowdRound = 2500 * time.Millisecond
)

// crowd is many client connections on bare descriptors, one goroutine for all.
type crowd []int

// gather opens n connections, evenly, with small receive buffers, and sends say on
// each. Where that brings an answer a bundle awaits it: the weather is that many
// are there, not that they come faster than the proxy can take them.
func gather(n, pace int, port int, say string, answered bool) (c crowd, err error) {
	began := time.Now()
	for i := range n {
		fd, err := connect(subject + port)
		if err != nil {
			return c, fmt.Errorf("connection %d: %w", i, err)
		}
		c = append(c, fd)
		if say != "" {
			if _, err := unix.Write(fd, []byte(say)); err != nil {
				return c, fmt.Errorf("writing on connection %d: %w", i, err)
			}
		}
		if bundle := max(1, pace/bundles); i%bundle != bundle-1 {
			continue
		}
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(pace))))
		if answered {
			unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000)
		}
	}
	return c, nil
}

func connect(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096); err != nil {
		return fd, err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}); err != nil {
		return fd, err
	}
	return fd, unix.SetNonblock(fd, true)
}

// rounds calls each for every connection once a round, evenly, until over is closed.
func (c crowd) rounds(over <-chan struct{}, round time.Duration, each func(i, fd int)) {
	const bundle = 25
	for {
		began := time.Now()
		for i, fd := range c {
			each(i, fd)
			if i%bundle != bundle-1 && i != len(c)-1 {
				continue
			}
			select {
			case <-over:
				return
			case <-time.After(time.Until(began.Add(round * time.Duration(i+1) / time.Duration(len(c))))):
			}
		}
	}
}

func (c crowd) leave() {
	for _, fd := range c {
		unix.Close(fd)
	}
}
