package load

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"sluice/bench/loop"
	"sluice/bench/machine"
	"sluice/bench/wire"
)

// driver runs engines on one epoll loop.
type driver struct {
	spec  Spec
	to    netip.AddrPort
	loop  *loop.Loop
	rec   *recorder
	free  []*client // with a slot, in an open loop
	fixed int64     // intended time of unit 0 of the open loop
	unit  int64     // next one
	live  int
	over  bool
}

// onLoop makes a load without TLS.
func onLoop(ctx context.Context, s Spec, to netip.AddrPort) (Result, error) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	l, err := loop.New()
	if err != nil {
		return Result{}, err
	}
	d := &driver{spec: s, to: to, loop: l, rec: newRecorder(machine.Monotonic)}
	held, err := d.holdIdle()
	if err != nil {
		return Result{}, err
	}
	for range s.Conns {
		if err := d.connect(); err != nil {
			return Result{}, err
		}
	}
	debug.SetGCPercent(-1)
	r, err := d.measure(ctx)
	runtime.KeepAlive(held)
	return r, err
}

// holdIdle opens the connections that are only held.
func (d *driver) holdIdle() (held []*loop.Conn, err error) {
	for i := range d.spec.Idle {
		c, err := d.loop.Dial(d.to, quiet{d.rec})
		if err != nil {
			return held, err
		}
		held = append(held, c)
		if i%100 == 99 {
			if err := d.loop.Poll(20 * time.Millisecond); err != nil {
				return held, err
			}
		}
	}
	for until := machine.Monotonic() + int64(2*time.Second); d.spec.Idle > 0 && machine.Monotonic() < until; {
		if err := d.loop.Poll(100 * time.Millisecond); err != nil {
			return held, err
		}
	}
	return held, nil
}

// quiet is a connection on which nothing is expected.
type quiet struct{ rec *recorder }

// Feed implements loop.Handler.
func (quiet) Feed(*loop.Conn, []byte) (int, error) {
	return 0, fmt.Errorf("bytes on an idle connection")
}

// Drained implements loop.Handler.
func (quiet) Drained(*loop.Conn) {}

// Closed implements loop.Handler.
func (q quiet) Closed(_ *loop.Conn, err error) {
	q.rec.fail(fmt.Errorf("an idle connection ended: %v", err))
}

func (d *driver) connect() error {
	c := &client{d: d}
	var err error
	switch d.spec.Kind {
	case "up":
		c.out = wire.Body(chunk)
	case "short":
		c.out = wire.Body(d.spec.Size)
		c.from = machine.Monotonic()
	default:
		if c.engine, err = newEngine(d.spec); err != nil {
			return err
		}
	}
	if _, err = d.loop.Dial(d.to, c); err != nil {
		return err
	}
	d.live++
	return nil
}

func (d *driver) measure(ctx context.Context) (r Result, err error) {
	var w window
	start := machine.Monotonic() + int64(d.spec.Warm)
	d.fixed = machine.Monotonic() + int64(20*time.Millisecond)
	if err := d.spin(ctx, start); err != nil {
		return r, err
	}
	if err := w.open(d.spec); err != nil {
		return r, err
	}
	d.rec.counting = true
	if err := d.spin(ctx, machine.Monotonic()+int64(d.spec.Length)); err != nil {
		return r, err
	}
	d.rec.counting = false
	if err := w.close(&r); err != nil {
		return r, err
	}
	d.over = true
	if d.live == 0 && d.rec.first == nil {
		d.rec.fail(fmt.Errorf("every connection has ended"))
	}
	d.rec.into(&r)
	return r, nil
}

// spin runs the loop until the time end.
func (d *driver) spin(ctx context.Context, end int64) error {
	for now := machine.Monotonic(); now < end && ctx.Err() == nil && d.live > 0; now = machine.Monotonic() {
		wait := end - now
		if d.spec.Rate > 0 {
			wait = min(wait, d.due(now))
		}
		if err := d.loop.Poll(time.Duration(wait)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (d *driver) intended(unit int64) int64 {
	return d.fixed + int64(float64(unit)*1e9/d.spec.Rate)
}

// due sends the units whose time has come, as far as connections are free, and
// gives the time to the next one. A unit without a free connection waits; its
// clock runs.
func (d *driver) due(now int64) (wait int64) {
	for {
		at := d.intended(d.unit)
		if at > now {
			return at - now
		}
		if len(d.free) == 0 {
			return int64(time.Second) // an answer wakes us
		}
		if d.rec.counting {
			d.rec.lag.Add(now - at)
		}
		d.send(at)
		now = machine.Monotonic()
	}
}

// send begins the next unit on the connection that has been free longest.
func (d *driver) send(at int64) {
	c := d.free[0]
	d.free = d.free[:copy(d.free, d.free[1:])]
	c.listed = false
	d.unit++
	c.conn.Out = c.engine.begin(c.conn.Out, at)
	c.list()
	c.conn.Flush()
}

// client is one connection.
type client struct {
	d      *driver
	conn   *loop.Conn
	engine engine // nil: up and short, which work without one
	out    []byte // up: the chunk; short: the message
	from   int64
	listed bool
}

// list puts the client among the free ones.
func (c *client) list() {
	if !c.listed && c.engine.slots() > 0 {
		c.listed = true
		c.d.free = append(c.d.free, c)
	}
}

// next begins what may begin now.
func (c *client) next(conn *loop.Conn) {
	d := c.d
	if d.spec.Rate == 0 {
		for c.engine.slots() > 0 && d.spec.Kind != "down" {
			conn.Out = c.engine.begin(conn.Out, machine.Monotonic())
		}
		return
	}
	// Whoever waited for this connection goes first; its clock has run all along.
	for c.engine.slots() > 0 && !c.listed {
		at := d.intended(d.unit)
		if len(d.free) > 0 || at > machine.Monotonic() {
			c.list()
			return
		}
		d.unit++
		conn.Out = c.engine.begin(conn.Out, at)
	}
}

// Feed implements loop.Handler.
func (c *client) Feed(conn *loop.Conn, in []byte) (used int, err error) {
	switch c.d.spec.Kind {
	case "up":
		return len(in), nil
	case "short":
		if len(in) < len(c.out) {
			return 0, nil
		}
		if string(in) != string(c.out) {
			return 0, fmt.Errorf("an echo that isn't what was sent")
		}
		c.d.rec.done(c.from)
		conn.Close(nil)
		return len(in), nil
	}
	used, conn.Out, err = c.engine.feed(in, conn.Out, c.d.rec)
	if err == nil {
		c.next(conn)
	}
	return used, err
}

// Drained implements loop.Handler.
func (c *client) Drained(conn *loop.Conn) {
	first := c.conn == nil
	c.conn = conn
	switch {
	case c.engine != nil:
		if first {
			c.next(conn)
		}
	case c.d.spec.Kind == "short":
		conn.Out = append(conn.Out, c.out...)
	default:
		if !first {
			c.d.rec.moved(len(c.out))
		}
		conn.Out = append(conn.Out, c.out...)
		conn.Flush()
		conn.WaitRoom()
	}
}

// Closed implements loop.Handler.
func (c *client) Closed(_ *loop.Conn, err error) {
	d := c.d
	d.live--
	if d.over {
		return
	}
	if d.spec.Kind != "short" || err != nil {
		d.rec.fail(fmt.Errorf("a connection ended: %v", err))
	}
	if d.spec.Kind == "short" && d.rec.errors < 100 {
		if err := d.connect(); err != nil {
			d.rec.fail(err)
		}
	}
}
