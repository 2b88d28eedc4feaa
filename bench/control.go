package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"sluice/bench/machine"
)

// changes is how many endpoint changes make a quantile.
const changes = 50

// control measures a proxy that gets its configuration from an ADS server: time
// to the first answer and memory, and at the largest size what changes cost.
func (c *cell) control(s scenario, name string, values map[string]float64) error {
	defer debug.FreeOSMemory()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collection of ours while a probe counts
	m := mesh{n: s.mesh, origin: c.net.Addr.Origin.String(), ports: c.ports}
	for i, port := range []int{c.ports.origin, c.ports.other} {
		if _, err := c.startOrigin("h1", port, 64+i); err != nil { // the length tells them apart
			return err
		}
	}
	server, err := c.serveMesh(m)
	if err != nil {
		return err
	}
	defer server.close()
	proxy, err := c.startControlled(name)
	if err != nil {
		return err
	}
	to := netip.AddrPortFrom(c.net.Addr.Proxy, uint16(c.ports.proxy))
	answered, err := c.firstAnswer(to, changingHost, 2*time.Minute)
	if err != nil {
		return fmt.Errorf("%w; refused: %.300q\n%s", err, server.refusals(), c.logOf(name))
	}
	if values["load"], err = since(filepath.Join(c.dir, "stamp"), answered); err != nil {
		return err
	}
	time.Sleep(5 * time.Second)
	kb, err := machine.PSS(proxy)
	if err != nil {
		return err
	}
	values["pss"] = kb / 1000
	if s.mesh >= 10000 {
		err = c.changesOf(server, m, to, proxy, values)
	}
	if refused := server.refusals(); err == nil && len(refused) > 0 {
		err = fmt.Errorf("configuration was refused: %.300q", refused[0])
	}
	return err
}

// serveMesh starts the control plane, in the client's namespace.
func (c *cell) serveMesh(m mesh) (*adsServer, error) {
	host := "127.0.0.1"
	if c.net.Client != "" {
		host = "10.77.1.1"
	}
	var l net.Listener
	err := machine.Within(c.net.Client, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", host, c.ports.ads))
		return err
	})
	if err != nil {
		return nil, err
	}
	server := serveADS(l)
	listener, err := m.listener()
	if err == nil {
		err = server.put(lds, "0.0.0.0_8080", listener)
	}
	if err == nil {
		err = server.put(rds, "8080", m.routes())
	}
	if err == nil {
		err = putSecrets(server, filepath.Join(c.dir, "certs-p256"))
	}
	if err == nil {
		err = m.generation(server, 0)
	}
	if err != nil {
		server.close()
		return nil, err
	}
	text, err := json.MarshalIndent(controlled(host, c.ports), "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(c.dir, "bootstrap.json"), text, 0o644)
	}
	return server, err
}

// generation puts another version of every cluster and its endpoints.
func (m mesh) generation(server *adsServer, generation int) error {
	for i, host := range m.hosts() {
		cluster, err := m.cluster(host, generation)
		if err == nil {
			err = server.put(cds, clusterName(host), cluster)
		}
		if err != nil {
			return err
		}
		if err := server.put(eds, clusterName(host), m.assignment(host, i, generation)); err != nil {
			return err
		}
	}
	return nil
}

// controlled is the bootstrap of a proxy that asks an ADS server for all, with
// Istio's choice of statistics, made when first used.
func controlled(host string, p ports) object {
	c := object{"name": "xds", "type": "STATIC", "connect_timeout": "1s",
		"load_assignment": object{"cluster_name": "xds", "endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": address(host, p.ads)}}}}}},
		"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
			"@type": typePrefix + "extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": object{"http2_protocol_options": object{}}}}}
	b := frame(p.admin, object{"clusters": []any{c}}, true, true)
	source := object{"ads": object{}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
	b["dynamic_resources"] = object{"lds_config": source, "cds_config": source, "ads_config": object{"api_type": "DELTA_GRPC", "transport_api_version": "V3",
		"set_node_on_first_message_only": true, "grpc_services": []any{object{"envoy_grpc": object{"cluster_name": "xds"}}}}}
	return b
}

func (c *cell) startControlled(name string) (pid int, err error) {
	stamp := filepath.Join(c.dir, "stamp")
	_ = os.Remove(stamp)
	argv := c.programs.configured(name, filepath.Join(c.dir, "bootstrap.json"), 1)
	cmd, err := c.spawn(machine.Place{Namespace: c.net.Proxy, Group: c.net.Group, Core: 1, Stamp: stamp}, nil, argv...)
	if err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

// changesOf changes one endpoint many times and then everything once, and looks
// at both from the outside.
func (c *cell) changesOf(server *adsServer, m mesh, to netip.AddrPort, pid int, values map[string]float64) error {
	changing, err := c.startProbe(to, changingHost)
	if err != nil {
		return err
	}
	defer changing.close()
	changing.expect(64) // its own start is no part of an effect
	if _, err := changing.arrived(20 * time.Second); err != nil {
		return err
	}
	var effects []float64
	for i := 1; i <= changes; i++ {
		name := clusterName(changingHost)
		if err := server.put(eds, name, m.assignment(changingHost, 0, i)); err != nil {
			return err
		}
		changing.expect(64 + i%2)
		at, err := server.push(eds, name)
		if err != nil {
			return err
		}
		seen, err := changing.arrived(20 * time.Second)
		if err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
		effects = append(effects, float64(seen-at)/1e6)
		time.Sleep(40*time.Millisecond + time.Duration(i%7)*5*time.Millisecond) // not in step with anything
	}
	slices.Sort(effects)
	values["effect50"], values["effect99"] = effects[len(effects)/2], effects[len(effects)*99/100]
	return c.changeAll(server, m, to, pid, changing, values)
}

// changeAll sends another generation of every cluster, then of all endpoints,
// as istiod does on a full push. A probe that goes past the proxy tells how much
// of a stall is our own, as control plane and probes share a core.
func (c *cell) changeAll(server *adsServer, m mesh, to netip.AddrPort, pid int, changing *probe, values map[string]float64) error {
	if err := m.generation(server, changes+1); err != nil {
		return err
	}
	debug.FreeOSMemory()
	steady, err := c.startProbe(to, steadyHost)
	if err != nil {
		return err
	}
	defer steady.close()
	beside, err := c.startProbe(netip.AddrPortFrom(c.net.Addr.Direct, uint16(c.ports.origin)), steadyHost)
	if err != nil {
		return err
	}
	defer beside.close()
	time.Sleep(500 * time.Millisecond)
	account := machine.OfProcesses(pid)
	before, err := account.Read()
	if err != nil {
		return err
	}
	steady.reset()
	beside.reset()
	changing.expect(64 + (changes+1)%2)
	at, err := server.push(cds)
	if err == nil {
		_, err = server.push(eds)
	}
	if err != nil {
		return err
	}
	seen, err := changing.arrived(2 * time.Minute)
	if err != nil {
		return fmt.Errorf("all changed: %w", err)
	}
	time.Sleep(2 * time.Second)
	after, err := account.Read()
	if err != nil {
		return err
	}
	values["reload"], values["reloadcpu"] = float64(seen-at)/1e6, after.Sub(before).Total/1e6
	values["stall"], values["beside"] = steady.longest(), beside.longest()
	time.Sleep(5 * time.Second)
	kb, err := machine.PSS(pid)
	values["pssafter"] = kb / 1000
	return err
}
