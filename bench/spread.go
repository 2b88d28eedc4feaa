package main

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"time"

	"sluice/bench/load"
	"sluice/bench/machine"
)

// few is a number of connections at which chance decides a lot.
const few = 8

// spread opens few connections again and again, and counts how many the busier
// of two workers has, on average.
func (c *cell) spread(s scenario, name string, values map[string]float64) error {
	if _, err := c.startOrigin(s.origin, c.ports.origin, s.size); err != nil {
		return err
	}
	if _, _, err := c.startProxy(name, s.shape, ""); err != nil {
		return err
	}
	to := c.target(name, s.shape)
	if err := c.waitListening(c.net.Client, to); err != nil {
		return fmt.Errorf("%w\n%s", err, c.logOf(name))
	}
	const times = 25
	sum := 0
	for range times {
		n, err := c.busier(to.String())
		if err != nil {
			return fmt.Errorf("%w\n%s", err, c.logOf(name))
		}
		sum += n
	}
	values["busier"] = float64(sum) / times
	return nil
}

// busier opens few connections, asks the proxy which worker has how many, and
// closes them.
func (c *cell) busier(to string) (most int, err error) {
	if err := c.untilActive(0); err != nil {
		return 0, err
	}
	var open []io.Closer
	defer func() {
		for _, x := range open {
			x.Close()
		}
	}()
	err = machine.Within(c.net.Client, func() error {
		for range few {
			conn, err := net.Dial("tcp", to)
			if err != nil {
				return err
			}
			open = append(open, conn)
			if err := load.Exchange(conn); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	byWorker, err := c.active()
	if err != nil {
		return 0, err
	}
	all := 0
	for _, n := range byWorker {
		all, most = all+n, max(most, n)
	}
	if all != few {
		return 0, fmt.Errorf("the workers have %v, which isn't %d", byWorker, few)
	}
	return most, nil
}

func (c *cell) untilActive(want int) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		byWorker, err := c.active()
		if err != nil {
			return err
		}
		all := 0
		for _, n := range byWorker {
			all += n
		}
		if all == want {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d connections are left, not %d", all, want)
		}
	}
}

var activeLine = regexp.MustCompile(`(?m)^listener\.[^:]*_15001\.worker_\d\.downstream_cx_active: (\d+)\r?$`)

// active asks the proxy for its connections by worker; only the one listener has any.
func (c *cell) active() (byWorker []int, err error) {
	var conn net.Conn
	err = machine.Within(c.net.Proxy, func() (err error) {
		conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", c.ports.admin))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /stats?filter=worker_ HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n"); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return nil, err
	}
	for _, m := range activeLine.FindAllSubmatch(text, -1) {
		n, _ := strconv.Atoi(string(m[1]))
		byWorker = append(byWorker, n)
	}
	if len(byWorker) != 2 {
		return nil, fmt.Errorf("no statistics of two workers in %.300q", text)
	}
	return byWorker, nil
}
