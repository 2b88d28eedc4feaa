package translate

import (
	"fmt"
	"slices"
	"strings"
)

// Supported writes docs/SUPPORTED.md from the tables, so that what is claimed is
// what is compiled in.
func (r *Registry) Supported() string {
	var b strings.Builder
	b.WriteString("# Supported configuration\n\nGenerated from xdsclient/translate/registry.go; don't edit.\n\n" +
		"A required extension that isn't here is refused by name, never skipped.\n")
	list(&b, "Resources", []string{
		shortURL(ClusterURL), shortURL(EndpointURL), shortURL(ListenerURL), shortURL(RouteURL),
		shortURL(SecretURL), shortURL(ExtensionURL), shortURL(NameTableURL),
	})
	list(&b, "Listener filters", sortedKeys(r.ListenerFilters))
	list(&b, "Network filters", sortedKeys(r.NetworkFilters))
	list(&b, "HTTP filters", append(sortedKeys(r.HTTPFilters), routerURL))
	list(&b, "Per-route filter configurations", append(sortedKeys(r.RouteFilters), routeFilterURL))
	list(&b, "Transport sockets, downstream", sortedKeys(r.DownstreamSockets))
	list(&b, "Transport sockets, upstream", sortedKeys(r.UpstreamSockets))
	list(&b, "Load balancing policies", sortedKeys(r.LBPolicies))
	list(&b, "Access loggers", r.active(sortedKeys(r.AccessLoggers)))
	if t := r.active(sortedKeys(r.Tracers)); len(t) > 0 {
		list(&b, "Tracers", t)
	}
	reasons(&b, "Accepted, without effect yet", r.Idle)
	reasons(&b, "Ignored, and why that is safe", r.Ignored)
	reasons(&b, "Known and refused", r.Unsupported)
	return b.String()
}

// active leaves out what has no effect yet.
func (r *Registry) active(names []string) []string {
	return slices.DeleteFunc(names, func(n string) bool { _, idle := r.Idle[n]; return idle })
}

func list(b *strings.Builder, title string, names []string) {
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, n := range names {
		fmt.Fprintf(b, "- `%s`\n", n)
	}
}

func reasons(b *strings.Builder, title string, m map[string]string) {
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, n := range sortedKeys(m) {
		fmt.Fprintf(b, "- `%s`: %s\n", n, m[n])
	}
}
