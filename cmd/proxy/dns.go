package main

import (
	"fmt"
	"os"
	"strings"

	"sluice/internal/config"
	"sluice/internal/nameserver"
)

// lookup is the part of readiness that waits for the first name table.
const lookup = "DNS lookup table"

// captureDNS prepares the server to which init redirects the pod's queries. It
// listens on the loopback addresses of the families that resolv.conf's servers
// have, for a redirected query keeps its family.
func (s *podSide) captureDNS() error {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return fmt.Errorf("ISTIO_META_DNS_CAPTURE: %w", err)
	}
	servers, search := nameserver.ResolvConf(string(text), nil)
	var listen []string
	if v := s.agent.Env("DNS_PROXY_ADDR"); v != "" {
		listen = []string{v}
	} else {
		four, six := false, false
		for _, at := range servers {
			six = six || at[0] == '['
			four = four || at[0] != '['
		}
		if four || !six {
			listen = append(listen, "127.0.0.1:15053")
		}
		if six {
			listen = append(listen, "[::1]:15053")
		}
	}
	s.dns = nameserver.New(nameserver.Options{Listen: listen, Servers: servers, Search: search})
	s.ready.Add(lookup, "DNS lookup table is not ready")
	return nil
}

// named takes a name table over.
func (s *podSide) named(t *config.NameTable) {
	if s.dns == nil || t == nil {
		return
	}
	_, domain, _ := strings.Cut(s.agent.Node.ID[strings.LastIndexByte(s.agent.Node.ID, '~')+1:], ".svc.")
	s.dns.Set(t, s.agent.Namespace, domain)
	s.ready.Done(lookup)
}
