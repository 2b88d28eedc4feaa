package identity

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"sluice/internal/config"
)

// Agent is what pilot-agent's command line, environment and pod files say,
// resolved. Nothing in it is read from the process: Inputs brings everything.
type Agent struct {
	Node        config.Node
	ProxyConfig map[string]any // effective, with defaults
	Env         func(string) string
	Namespace   string
	Pod         string
	Account     string
	TrustDomain string
	Labels      map[string]string
	Annotations map[string]string
	ClusterID   string
	Ignored     []error // variables without effect, and why; pilot-agent goes on without them too
}

// Inputs are what an Agent is made of.
type Inputs struct {
	Type           string // "sidecar" when empty
	Domain         string // --domain
	ServiceCluster string // --serviceCluster
	Concurrency    int    // --concurrency
	MeshConfig     string // --meshConfig, a file
	Environ        []string
	ReadFile       func(string) ([]byte, error)
	Addresses      []netip.Addr // of the machine, without loopback and excluded interfaces
	Version        string       // reported to istiod as ISTIO_VERSION, which gates on it
}

// Paths of pod files, relative to the working directory as in Istio's image.
const (
	labelsFile      = "./etc/istio/pod/labels"
	annotationsFile = "./etc/istio/pod/annotations"
)

// NewAgent resolves the inputs. Missing files are fine; a broken proxy
// configuration is an error.
func NewAgent(in Inputs) (*Agent, error) {
	env := map[string]string{}
	for _, e := range in.Environ {
		k, v, _ := strings.Cut(e, "=")
		env[k] = v
	}
	a := &Agent{
		Env: func(k string) string { return env[k] }, Namespace: env["POD_NAMESPACE"], Pod: env["POD_NAME"],
		Account: env["SERVICE_ACCOUNT"], TrustDomain: or(env["TRUST_DOMAIN"], "cluster.local"), ClusterID: env["ISTIO_META_CLUSTER_ID"],
	}
	if ip := env["INSTANCE_IP"]; ip != "" {
		if _, err := netip.ParseAddr(ip); err != nil { // istiod would refuse the node, without the variable's name
			return nil, fmt.Errorf("INSTANCE_IP %q is not an IP address", ip)
		}
	}
	a.Labels = podFile(in.ReadFile, labelsFile)
	delete(a.Labels, "pod-template-hash")
	a.Annotations = podFile(in.ReadFile, annotationsFile)
	var err error
	if a.ProxyConfig, err = proxyConfig(in, env, a.Annotations); err != nil {
		return nil, err
	}
	if in.Concurrency > 0 {
		a.ProxyConfig["concurrency"] = float64(in.Concurrency)
	} else if n, err := strconv.Atoi(env["ISTIO_CPU_LIMIT"]); err == nil && a.ProxyConfig["concurrency"] == nil {
		a.ProxyConfig["concurrency"] = float64(n)
	}
	if in.ServiceCluster != "" {
		a.ProxyConfig["serviceCluster"] = in.ServiceCluster
	}
	a.Node = a.node(in, env)
	return a, nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// proxyConfig layers Istio's defaults, the mesh file, PROXY_CONFIG and the
// annotations; a later layer replaces fields, whole lists too.
func proxyConfig(in Inputs, env, annotations map[string]string) (map[string]any, error) {
	out := map[string]any{
		"binaryPath": "/usr/local/bin/envoy", "configPath": "./etc/istio/proxy", "controlPlaneAuthPolicy": "MUTUAL_TLS",
		"discoveryAddress": "istiod.istio-system.svc:15012", "drainDuration": "45s", "proxyAdminPort": float64(15000),
		"serviceCluster": "istio-proxy", "statNameLength": float64(189), "statusPort": float64(15020), "terminationDrainDuration": "5s",
	}
	if in.MeshConfig != "" {
		if b, err := in.ReadFile(in.MeshConfig); err == nil {
			var mesh struct {
				DefaultConfig map[string]any `json:"defaultConfig"`
			}
			if err := yaml.Unmarshal(b, &mesh); err != nil {
				return nil, fmt.Errorf("mesh configuration %s: %w", in.MeshConfig, err)
			}
			overlay(out, mesh.DefaultConfig)
		}
	}
	for _, layer := range []struct{ name, text string }{
		{"PROXY_CONFIG", env["PROXY_CONFIG"]}, {"annotation proxy.istio.io/config", annotations["proxy.istio.io/config"]},
	} {
		var m map[string]any
		if err := yaml.Unmarshal([]byte(layer.text), &m); err != nil {
			return nil, fmt.Errorf("%s: %w", layer.name, err)
		}
		overlay(out, m)
	}
	if v := annotations["sidecar.istio.io/discoveryAddress"]; v != "" {
		out["discoveryAddress"] = v
	}
	if n, err := strconv.Atoi(annotations["status.sidecar.istio.io/port"]); err == nil {
		out["statusPort"] = float64(n)
	}
	return out, nil
}

func overlay(base, over map[string]any) {
	for k, v := range over {
		base[k] = v
	}
}

// podFile reads a file of the downward API: lines key="quoted value".
func podFile(read func(string) ([]byte, error), path string) map[string]string {
	out := map[string]string{}
	if read == nil {
		return out
	}
	b, err := read(path)
	if err != nil {
		return out
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		if u, err := strconv.Unquote(v); err == nil {
			v = u
		}
		out[k] = v
	}
	return out
}

// Text gives a string of the proxy configuration.
func (a *Agent) Text(key string) string {
	s, _ := a.ProxyConfig[key].(string)
	return s
}

// Number gives a number of the proxy configuration, def when it has none.
func (a *Agent) Number(key string, def int) int {
	if n, ok := a.ProxyConfig[key].(float64); ok {
		return int(n)
	}
	return def
}

// SPIFFE is the id to ask the CA for.
func (a *Agent) SPIFFE() string { return SPIFFE(a.TrustDomain, a.Namespace, a.Account) }

func (a *Agent) node(in Inputs, env map[string]string) config.Node {
	ips := instanceIPs(env["INSTANCE_IP"], in.Addresses)
	first := "127.0.0.1"
	if len(ips) > 0 {
		first = ips[0]
	}
	domain := or(in.Domain, a.Namespace+".svc.cluster.local")
	n := config.Node{
		ID:      fmt.Sprintf("%s~%s~%s.%s~%s", or(in.Type, "sidecar"), first, a.Pod, a.Namespace, domain),
		Cluster: a.serviceCluster(env),
	}
	n.Region, n.Zone, n.SubZone = locality(a.Labels)
	n.Metadata = a.metadata(in, env, ips)
	return n
}

func instanceIPs(first string, all []netip.Addr) []string {
	var out []string
	if first != "" {
		out = append(out, first)
	}
	for _, ip := range all {
		if s := ip.String(); s != first && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			out = append(out, s)
		}
	}
	return out
}

func (a *Agent) serviceCluster(env map[string]string) string {
	if s := a.Text("serviceCluster"); s != "" && s != "istio-proxy" {
		return s
	}
	name := or(or(a.Labels["app"], env["ISTIO_META_WORKLOAD_NAME"]), "istio-proxy")
	return name + "." + a.Namespace
}

func locality(labels map[string]string) (region, zone, sub string) {
	l := or(labels["topology.istio.io/locality"], strings.ReplaceAll(labels["istio-locality"], ".", "/"))
	parts := append(strings.SplitN(l, "/", 3), "", "", "")
	return parts[0], parts[1], parts[2]
}

// metadata gives the node metadata istiod reads. Truth values are the strings
// "true" and "false", numbers of ports are numbers.
func (a *Agent) metadata(in Inputs, env map[string]string, ips []string) config.Struct {
	m := config.Struct{
		"INSTANCE_IPS": strings.Join(ips, ","), "ISTIO_VERSION": in.Version, "LABELS": stringStruct(a.Labels),
		"NAME": a.Pod, "NAMESPACE": a.Namespace, "SERVICE_ACCOUNT": a.Account, "PROXY_CONFIG": value(a.ProxyConfig),
		"INTERCEPTION_MODE": "REDIRECT", "ENVOY_STATUS_PORT": number(env["ENVOY_STATUS_PORT"], 15021),
		"ENVOY_PROMETHEUS_PORT":         number(env["ENVOY_PROMETHEUS_PORT"], 15090),
		"ENVOY_SKIP_DEPRECATED_LOGS":    or(env["ENVOY_SKIP_DEPRECATED_LOGS"], "true"),
		"METADATA_DISCOVERY":            or(env["PEER_METADATA_DISCOVERY"], or(env["ISTIO_META_ENABLE_HBONE"], "false")),
		"WORKLOAD_IDENTITY_SOCKET_FILE": or(env["WORKLOAD_IDENTITY_SOCKET_FILE"], "socket"),
		"PILOT_SAN":                     config.List{(&Peer{Address: a.Text("discoveryAddress"), ServerName: env["ISTIOD_SAN"]}).serverName()},
	}
	if len(a.Annotations) > 0 {
		m["ANNOTATIONS"] = stringStruct(a.Annotations)
	}
	if env["EXIT_ON_ZERO_ACTIVE_CONNECTIONS"] == "true" {
		m["EXIT_ON_ZERO_ACTIVE_CONNECTIONS"] = "true"
	}
	for k, v := range env {
		if name, ok := strings.CutPrefix(k, "ISTIO_META_"); ok && name != "" {
			m[name] = v
			if name == "POD_PORTS" {
				m[name] = compactJSON(v)
			}
		}
		if strings.HasPrefix(k, "ISTIO_METAJSON_") {
			var more map[string]any
			if err := json.Unmarshal([]byte(v), &more); err != nil {
				a.Ignored = append(a.Ignored, fmt.Errorf("%s is not a JSON object: %w", k, err))
			}
			for name, x := range more {
				m[name] = value(x)
			}
		}
	}
	return m
}

func number(text string, def float64) config.Value {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n
	}
	return def
}

// compactJSON takes the white space out, as istiod's own agent does.
func compactJSON(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	b, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return string(b)
}

func stringStruct(m map[string]string) config.Struct {
	out := make(config.Struct, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// value turns decoded JSON into a config value.
func value(v any) config.Value {
	switch v := v.(type) {
	case map[string]any:
		out := make(config.Struct, len(v))
		for k, x := range v {
			out[k] = value(x)
		}
		return out
	case []any:
		out := make(config.List, len(v))
		for i, x := range v {
			out[i] = value(x)
		}
		return out
	case int:
		return float64(v)
	case int64:
		return float64(v)
	}
	return v
}
