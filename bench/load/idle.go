package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"sluice/bench/machine"
)

// settle is how long a proxy has to give back what its start and the first
// connection needed. Another connection then has it map again what of its code
// every connection uses.
const settle = 5 * time.Second

// hold opens connections up to each of Steps, makes one exchange on each, holds
// them for Hold, and reads the proxy's memory: KB a connection over what it had
// with the first two, once that had settled.
func hold(ctx context.Context, s Spec) (r Result, err error) {
	var conf *tls.Config
	if s.Certs != "" {
		if conf, err = clientTLS(s.Certs); err != nil {
			return r, err
		}
	}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	grow := func(to int) error {
		for len(conns) < to {
			c, err := introduce(ctx, s, conf)
			if err != nil {
				return fmt.Errorf("connection %d: %w", len(conns)+1, err)
			}
			conns = append(conns, c)
		}
		return nil
	}
	if err := grow(1); err != nil {
		return r, err
	}
	time.Sleep(settle)
	if err := grow(2); err != nil {
		return r, err
	}
	before, err := machine.PSS(s.PID)
	if err != nil {
		return r, err
	}
	for _, step := range s.Steps {
		if err := grow(step + 2); err != nil {
			return r, err
		}
		time.Sleep(s.Hold)
		after, err := machine.PSS(s.PID)
		if err != nil {
			return r, err
		}
		r.Memory = append(r.Memory, (after-before)/float64(step))
	}
	r.Units = uint64(len(conns))
	return r, nil
}

// introduce opens a connection and makes one exchange, so that the proxy has
// used whatever it uses.
func introduce(ctx context.Context, s Spec, conf *tls.Config) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	c, err := d.DialContext(ctx, "tcp", s.To)
	if err != nil {
		return nil, err
	}
	if conf != nil {
		c = tls.Client(c, conf)
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if s.Kind == "idle" {
		return c, Exchange(c)
	}
	if _, err := c.Write([]byte(Request)); err != nil {
		return c, err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return c, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return c, fmt.Errorf("answer %s", res.Status)
	}
	return c, nil
}
