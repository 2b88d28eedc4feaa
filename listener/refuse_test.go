package listener

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"sluice/internal/config"
)

// A filter that judges by the first bytes has read them: whom it turns away sees
// the end of the stream, with TLS a close_notify, not the reset of bytes that no
// chain wants.
func TestWhoIsDeniedSeesTheEndOfTheStream(t *testing.T) {
	r := newRig(t, func(o *Options) {
		secret := certified(t, "a.example")
		o.Secrets = func(string) *config.Secret { return secret }
	})
	any := []config.RBACExpr{{Op: config.RBACAny}}
	deny := &config.NetworkRBAC{RBAC: &config.RBAC{StatPrefix: "r",
		Rules: &config.RBACRules{Action: config.RBACDeny, Policies: []config.RBACPolicy{{Name: "p", Permissions: any, Principals: any}}}}}
	for name, c := range map[string]*config.FilterChain{
		"relay": chainOf("c", deny, &config.TCPProxy{Cluster: "a"}), "early": chainOf("c", deny, says("never")),
		"relay tls": secure(chainOf("c", deny, &config.TCPProxy{Cluster: "a"}), "s"), "early tls": secure(chainOf("c", deny, says("never")), "s"),
	} {
		l := listenerOf(name, 1, c)
		l.Filters.TLSInspector, l.Filters.HTTPInspector = &config.Inspector{}, &config.Inspector{}
		r.apply(l)
		var conn net.Conn = r.dial(name)
		if c.TLS != nil {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"})
		}
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		if c.TLS == nil || name == "relay tls" {
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		if n, err := conn.Read(make([]byte, 10)); n != 0 || err != io.EOF {
			t.Errorf("%s: %d bytes and %v", name, n, err)
		}
		conn.Close()
	}
}
