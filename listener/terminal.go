package listener

import (
	"sluice/internal/worker"
	"sluice/listener/downstream"
)

// sniCluster is envoy.filters.network.sni_cluster: the client's server name
// names the cluster.
type sniCluster struct{}

func (sniCluster) Admit(c *downstream.Connection, _ func()) downstream.Admission {
	if c.SNI != "" {
		c.Note().Cluster = c.SNI
	}
	return downstream.Pass
}

// echoTerminal is envoy.filters.network.echo.
type echoTerminal struct{}

func (echoTerminal) Serve(c *downstream.Connection) { c.Conn.SetHandler(&echo{c: c}) }

type echo struct{ c *downstream.Connection }

func (e *echo) OnData(c *worker.Conn, b []byte) int {
	c.WriteNow(b)
	if c.Pending() >= worker.HighWater {
		c.PauseRead()
	}
	return len(b)
}
func (e *echo) OnDrain(c *worker.Conn)        { c.ResumeRead() }
func (e *echo) OnEOF(c *worker.Conn)          { c.CloseWhenFlushed() }
func (e *echo) OnClose(*worker.Conn, error)   { e.c.Gone() }
func (e *echo) OnConnect(*worker.Conn, error) {}

// directTerminal is envoy.filters.network.direct_response.
type directTerminal struct{ body []byte }

func (t directTerminal) Serve(c *downstream.Connection) {
	c.Conn.SetHandler(&leaving{c})
	if len(t.body) > 0 {
		c.Conn.Write(t.body)
	}
	c.Conn.CloseWhenFlushed()
}

// closeTerminal ends connections of a chain that has no terminal.
type closeTerminal struct{}

func (closeTerminal) Serve(c *downstream.Connection) {
	c.Conn.SetHandler(&leaving{c})
	c.Conn.Close()
}

// leaving waits for the end of a connection that is being closed.
type leaving struct{ c *downstream.Connection }

func (l *leaving) OnData(_ *worker.Conn, b []byte) int { return len(b) }
func (l *leaving) OnDrain(*worker.Conn)                {}
func (l *leaving) OnEOF(*worker.Conn)                  {}
func (l *leaving) OnClose(*worker.Conn, error)         { l.c.Gone() }
func (l *leaving) OnConnect(*worker.Conn, error)       {}
