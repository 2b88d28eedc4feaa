package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sluice/bench/load"
	"sluice/bench/machine"
)

// startUp measures from exec to the first answer, and memory 2 s later.
func (c *cell) startUp(s scenario, name string, values map[string]float64) error {
	if _, err := c.startOrigin(s.origin, c.ports.origin, s.size); err != nil {
		return err
	}
	stamp := filepath.Join(c.dir, "stamp")
	_ = os.Remove(stamp)
	proxy, _, err := c.startProxy(name, s.shape, stamp)
	if err != nil {
		return err
	}
	answered, err := c.firstAnswer(c.target(name, s.shape), "svc.test", 20*time.Second)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, c.logOf(name))
	}
	if values["start"], err = since(stamp, answered); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	kb, err := machine.PSS(proxy.Process.Pid)
	values["pss"] = kb / 1000
	return err
}

// since gives the milliseconds from the time in a stamp file.
func since(stamp string, at int64) (float64, error) {
	text, err := os.ReadFile(stamp)
	if err != nil {
		return 0, err
	}
	from, err := strconv.ParseInt(string(text), 10, 64)
	return float64(at-from) / 1e6, err
}

// firstAnswer asks on new connections, each half millisecond, until the answer
// is 200, and gives its time.
func (c *cell) firstAnswer(to netip.AddrPort, host string, limit time.Duration) (at int64, err error) {
	request := strings.Replace(load.Request, "svc.test", host, 1)
	last := fmt.Errorf("no connection")
	err = machine.Within(c.net.Client, func() error {
		for deadline := time.Now().Add(limit); time.Now().Before(deadline) && c.ctx.Err() == nil; time.Sleep(500 * time.Microsecond) {
			if last = askOnce(to.String(), request); last == nil {
				at = machine.Monotonic()
				return nil
			}
		}
		return fmt.Errorf("no 200 in %s: %w", limit, last)
	})
	return at, err
}

func askOnce(to, request string) error {
	conn, err := net.DialTimeout("tcp", to, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte(request)); err != nil {
		return err
	}
	head := make([]byte, 12)
	if _, err := conn.Read(head); err != nil {
		return err
	}
	if string(head) != "HTTP/1.1 200" {
		return fmt.Errorf("answer %s", head)
	}
	return nil
}
