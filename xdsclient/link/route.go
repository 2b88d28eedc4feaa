package link

import (
	"sluice/internal/config"
)

// routes enters every route table, with the overrides of its routes merged into
// the filters of the connection manager that uses it.
func (l *linker) routes() {
	for name, r := range l.accepted.Routes {
		l.next.Routes[name] = l.table(r)
	}
	for name, r := range l.accepted.Static.Routes {
		l.next.Routes[name] = l.table(r)
	}
}

func (l *linker) table(r *config.RouteConfiguration) *config.RouteConfiguration {
	before := l.previous.Routes[r.Name]
	filters, used := l.lists[r.Name]
	if used && !l.mixed[r.Name] && overrides(r) {
		r = merge(r, filters)
	}
	if before != nil && before.Hash == r.Hash && sameTables(before, r) {
		return before
	}
	return r
}

// overrides says that some route changes its filters.
func overrides(r *config.RouteConfiguration) bool {
	if len(r.PerFilter) > 0 {
		return true
	}
	for _, v := range r.VirtualHosts {
		if len(v.PerFilter) > 0 {
			return true
		}
		for _, x := range v.Routes {
			if len(x.PerFilter) > 0 {
				return true
			}
		}
	}
	return false
}

// merge gives r with each overriding route's final filter list. The most
// specific override of a filter counts: route, virtual host, table.
func merge(r *config.RouteConfiguration, filters []config.HTTPFilter) *config.RouteConfiguration {
	out := *r
	out.VirtualHosts = make([]*config.VirtualHost, len(r.VirtualHosts))
	for i, v := range r.VirtualHosts {
		host := *v
		host.Routes = make([]*config.Route, len(v.Routes))
		for j, x := range v.Routes {
			if len(x.PerFilter)+len(v.PerFilter)+len(r.PerFilter) == 0 {
				host.Routes[j] = x
				continue
			}
			rt := *x
			rt.Filters = final(filters, x.PerFilter, v.PerFilter, r.PerFilter)
			host.Routes[j] = &rt
		}
		out.VirtualHosts[i] = &host
	}
	return &out
}

// final applies the overrides to filters, nil when they change nothing. A
// disabled filter stays in the list as Disabled, for others of its name may
// come after it.
func final(filters []config.HTTPFilter, levels ...map[string]config.HTTPPolicy) []config.HTTPFilter {
	var out []config.HTTPFilter
	for i, f := range filters {
		p := override(f.Name, levels)
		if p == nil {
			continue
		}
		if out == nil {
			out = append(out, filters...)
		}
		switch p.(type) {
		case *config.DisabledFilter:
			out[i].Disabled = true
		case *config.EnabledFilter:
			out[i].Disabled = false
		default:
			out[i].Policy, out[i].Disabled, out[i].Discovery = p, false, nil
		}
	}
	return out
}

func override(name string, levels []map[string]config.HTTPPolicy) config.HTTPPolicy {
	for _, l := range levels {
		if p, ok := l[name]; ok {
			return p
		}
	}
	return nil
}

// sameTables compares the merged filters of two tables of equal bytes.
func sameTables(a, b *config.RouteConfiguration) bool {
	if len(a.VirtualHosts) != len(b.VirtualHosts) {
		return false
	}
	for i, v := range a.VirtualHosts {
		w := b.VirtualHosts[i]
		if len(v.Routes) != len(w.Routes) {
			return false
		}
		for j, x := range v.Routes {
			y := w.Routes[j]
			if !sameFilters(x.Filters, y.Filters, false) {
				return false
			}
		}
	}
	return true
}
