package pool

import (
	"errors"

	"golang.org/x/sys/unix"

	"sluice/internal/h1"
	"sluice/internal/h2"
	"sluice/internal/worker"
)

func (c *Conn) newEngine() engine {
	if c.http2 {
		h := h2.NewClient(c.wire, c.pool.cluster.H2)
		if o := &c.pool.cluster.Config.HTTP.HTTP2; o.KeepaliveTimeout > 0 {
			h.OnPingAck = c.pings.Acked
			c.pings.Start(c.pool.cluster.Worker, h, o.KeepaliveInterval, o.KeepaliveTimeout, c.unanswered)
		}
		return h2Client{h}
	}
	return h1.NewClient(c.wire, c.pool.cluster.H1)
}

// h2Client is an HTTP/2 client in the shape of the HTTP/1 one.
type h2Client struct{ *h2.Client }

// Reusable implements engine: there is room for a stream now.
func (c h2Client) Reusable() bool { return c.CanOpen() }

// ConnectReason words a failed connect as Envoy does.
func ConnectReason(err error) string {
	if errors.Is(err, worker.ErrConnectTimeout) {
		return ""
	}
	var e unix.Errno
	if !errors.As(err, &e) {
		return "immediate connect error: " + err.Error()
	}
	return "delayed connect error: " + errnoText(e)
}

// errnoText is glibc's text, which Envoy's logs show.
func errnoText(e unix.Errno) string {
	switch e {
	case unix.ECONNREFUSED:
		return "Connection refused"
	case unix.EHOSTUNREACH:
		return "No route to host"
	case unix.ENETUNREACH:
		return "Network is unreachable"
	case unix.ETIMEDOUT:
		return "Connection timed out"
	case unix.ECONNRESET:
		return "Connection reset by peer"
	case unix.EADDRNOTAVAIL:
		return "Cannot assign requested address"
	case unix.ENOENT:
		return "No such file or directory"
	case unix.EACCES:
		return "Permission denied"
	}
	s := []byte(e.Error())
	if len(s) > 0 && 'a' <= s[0] && s[0] <= 'z' {
		s[0] -= 32
	}
	return string(s)
}
