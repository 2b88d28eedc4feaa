package worker

import "golang.org/x/sys/unix"

const (
	pipesKept  = 32      // idle pipes a worker keeps
	pipesMax   = 64      // pipes a worker may have in use; beyond it relays copy
	spliceSize = 1 << 20 // asked for at once; the pipe's size bounds it
	pipeSize   = 256 << 10
)

// pipe is a kernel pipe that holds n bytes.
type pipe struct{ r, w, n int }

type pipePool struct {
	idle []*pipe
	out  int
}

func (p *pipePool) take() *pipe {
	if k := len(p.idle); k > 0 {
		x := p.idle[k-1]
		p.idle = p.idle[:k-1]
		p.out++
		return x
	}
	if p.out >= pipesMax {
		return nil
	}
	var f [2]int
	if unix.Pipe2(f[:], unix.O_NONBLOCK|unix.O_CLOEXEC) != nil {
		return nil
	}
	unix.FcntlInt(uintptr(f[1]), unix.F_SETPIPE_SZ, pipeSize) // refused beyond the user's quota: the default size does
	p.out++
	return &pipe{r: f[0], w: f[1]}
}

func (p *pipePool) give(x *pipe) {
	p.out--
	if x.n == 0 && len(p.idle) < pipesKept {
		p.idle = append(p.idle, x)
		return
	}
	sysClose(x.r)
	sysClose(x.w)
}

func (p *pipePool) close() {
	for _, x := range p.idle {
		sysClose(x.r)
		sysClose(x.w)
	}
	p.idle = nil
}

// splice is a direction that bypasses user space.
type splice struct {
	to    *Conn
	p     *pipe
	left  uint64      // to be read yet, where there is a bound
	moved func(n int) // where there is a bound
	waits bool        // for room at to
}

// stalled notes once that nothing is read until the receiver has room.
func (s *splice) stalled(c *Conn) {
	if !s.waits {
		s.waits = true
		c.stalls++
	}
}

// Splice moves what arrives on c to dst inside the kernel, until c has nothing
// more to read; then OnData gets bytes again. It reports false, changing
// nothing, if that isn't possible: a layer, kept bytes, pending output, or no
// pipe to be had. Called from OnData, the caller must have consumed all bytes.
func (c *Conn) Splice(dst *Conn) bool { return c.startSplice(dst, splice{}) }

// SpliceN is Splice for the next n bytes; what follows them goes to OnData.
// moved is told, on the worker, of each part that dst's kernel took; nothing may
// be written to dst meanwhile. A close of either side ends it without a call.
func (c *Conn) SpliceN(dst *Conn, n uint64, moved func(n int)) bool {
	return n > 0 && dst.flags&closing == 0 && c.startSplice(dst, splice{left: n, moved: moved})
}

func (c *Conn) startSplice(dst *Conn, s splice) bool {
	if c.layer != nil || dst.layer != nil || dst.Pending() > 0 || c.splice != nil || dst.feeder != nil {
		return false
	}
	if c.flags&(dead|eof) != 0 || dst.flags&(dead|finAfter|connecting|blocked) != 0 || dst.werr != 0 {
		return false
	}
	p := c.w.pipes.take()
	if p == nil {
		return false
	}
	s.to, s.p = dst, p
	c.splice = &s
	dst.feeder = c
	c.enqueue()
	return true
}

// Stalls counts the times that splicing stopped reading c because dst was full.
func (c *Conn) Stalls() uint64 { return uint64(c.stalls) }

func (c *Conn) unsplice() {
	s := c.splice
	if s == nil {
		return
	}
	c.splice = nil
	if s.to.feeder == c {
		s.to.feeder = nil
	}
	c.w.pipes.give(s.p)
}

// spliceOn moves one pipe's worth and reports whether there may be more.
func (c *Conn) spliceOn() bool {
	s := c.splice
	to := s.to
	if to.flags&(dead|closing) != 0 || to.werr != 0 {
		c.unsplice()
		c.flags |= readable
		return true
	}
	if s.p.n > 0 {
		return c.spliceOut()
	}
	if c.flags&readable == 0 {
		if s.moved == nil {
			c.unsplice()
		}
		return false
	}
	s.waits = false
	size := uint64(spliceSize)
	if s.moved != nil {
		size = min(size, s.left)
	}
	c.w.calls.Splices++
	n, e := sysSplice(int(c.fd), s.p.w, int(size))
	switch {
	case e == unix.EAGAIN:
		c.flags &^= readable | hup
		if s.moved == nil || c.w.pipes.out > pipesMax/2 {
			c.unsplice() // others may need the pipe
		}
		return false
	case e == unix.EINTR:
		return true
	case e != 0:
		c.fail(e)
		return false
	case n == 0:
		c.unsplice() // end of file: the ordinary read sees it and tells
		return true
	}
	s.p.n += n
	s.left -= min(s.left, uint64(n))
	c.rx += uint64(n)
	return c.spliceOut()
}

func (c *Conn) spliceOut() bool {
	s := c.splice
	to := s.to
	for s.p.n > 0 {
		if to.flags&blocked != 0 {
			s.stalled(c)
			return false
		}
		c.w.calls.Splices++
		n, e := sysSplice(s.p.r, int(to.fd), s.p.n)
		switch {
		case e == unix.EAGAIN:
			to.flags |= blocked
			s.stalled(c)
			return false
		case e == unix.EINTR:
		case e != 0:
			c.unsplice() // closes the pipe, which isn't empty
			to.writeFailed(e)
			c.flags |= readable
			return true
		default:
			s.p.n -= n
			to.tx += uint64(n)
			if s.moved != nil {
				if s.left == 0 && s.p.n == 0 {
					c.unsplice()
				}
				if s.moved(n); c.splice != s {
					return c.flags&(dead|closing) == 0
				}
			}
		}
	}
	return true
}
