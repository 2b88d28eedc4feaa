package nameserver

import (
	"net"
	"net/netip"
	"strings"
)

// ResolvConf reads the name servers, as host:port, and the first search domain of
// a resolv.conf. Servers on own, the addresses that we listen on ourselves, are
// left out.
func ResolvConf(text string, own []string) (servers []string, search string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) < 2:
		case f[0] == "nameserver":
			ip, err := netip.ParseAddr(f[1])
			if err != nil {
				continue
			}
			at := net.JoinHostPort(ip.String(), "53")
			mine := false
			for _, o := range own {
				mine = mine || o == at
			}
			if !mine {
				servers = append(servers, at)
			}
		case f[0] == "search" || f[0] == "domain":
			search = strings.Trim(f[1], ".")
		}
	}
	return servers, search
}
