package weather

import (
	"strings"

	"golang.org/x/sys/unix"
)

// slowReaders ask for much and take 256 bytes of it now and then.
func slowReaders(port int, ask string) func(facts, func(), <-chan struct{}) error {
	return func(f facts, up func(), over <-chan struct{}) error {
		c, err := gather(crowdSize(), crowdPace, port, ask, true)
		defer c.leave()
		if err != nil {
			return err
		}
		up()
		var b [256]byte
		c.rounds(over, crowdRound, func(_, fd int) {
			n, err := unix.Read(fd, b[:])
			switch {
			case n > 0:
				f["read"] += n
			case err != unix.EAGAIN:
				f["lost"]++
			}
		})
		f["connections"] = len(c)
		return nil
	}
}

const (
	never       = 300 // clients of a kind
	greedy      = 10  // streams of each that speaks HTTP/2
	greedyPeers = 2*never + greedy*never
)

// neverReads has clients that take nothing: they ask and ask on HTTP/1.1, have
// streams with all the window there is and send PING, and plain TCP.
func neverReads(f facts, up func(), over <-chan struct{}) error {
	h1, err := gather(never, crowdPace, viaHTTP, "", false)
	defer h1.leave()
	if err != nil {
		return err
	}
	h2, err := gather(never, 300, viaHTTP, string(greedyStreams(greedy)), true)
	defer h2.leave()
	if err != nil {
		return err
	}
	tcp, err := gather(never, crowdPace, viaTCP, "x", true)
	defer tcp.leave()
	if err != nil {
		return err
	}
	up()
	more, ping := []byte(strings.Repeat(floodRequest, 1000)), pingFrame()
	all := append(append(crowd{}, h1...), h2...)
	all.rounds(over, crowdRound/10, func(i, fd int) {
		say := more
		if i >= never {
			say = ping
		}
		switch n, err := unix.Write(fd, say); {
		case n > 0:
			f["written"] += n
		case err == unix.EAGAIN:
			f["pushed back"]++
		default:
			f["ended by the proxy"]++
		}
	})
	return nil
}
