package link

import (
	"slices"

	"sluice/internal/config"
)

// listeners enters every listener that is whole, else its previous version.
// Static ones come first.
func (l *linker) listeners() {
	before := make(map[string]*config.Listener, len(l.previous.Listeners))
	for _, x := range l.previous.Listeners {
		before[x.Name] = x
	}
	for _, group := range [][]*config.Listener{l.accepted.Static.Listeners, l.accepted.Listeners} {
		for _, x := range group {
			if in := l.listener(x, before[x.Name]); in != nil {
				l.next.Listeners = append(l.next.Listeners, in)
			}
		}
	}
}

// listener gives x, or its previous version with fresh filters.
func (l *linker) listener(x, before *config.Listener) *config.Listener {
	if waits := l.listenerWaits(x); len(waits) > 0 {
		l.waiting = append(l.waiting, waits...)
		if x = before; before == nil {
			return nil
		}
	}
	linked := l.resolve(x)
	if before != nil && sameListener(before, linked) {
		linked = before
	}
	return linked
}

func (l *linker) listenerWaits(x *config.Listener) []Waiting {
	var out []Waiting
	wait := func(p Part, w Waiting) {
		w.Resource, w.Part = x.Name, p
		if !l.accepted.Settled[p] {
			out = append(out, w)
		}
	}
	for _, m := range Managers(x) {
		if m.RouteName != "" && l.accepted.Routes[m.RouteName] == nil {
			wait(Part{Kind: KindRoutes, Name: m.RouteName}, Waiting{Timeout: m.RDSInitialTimeout})
		}
		for _, f := range m.Filters {
			if f.Discovery == nil || f.Discovery.WithoutWarming && f.Discovery.Default != nil {
				continue
			}
			if _, ok := l.accepted.Extensions[f.Name]; !ok {
				wait(Part{Kind: KindExtensions, Name: f.Name}, Waiting{Timeout: f.Discovery.Timeout})
			}
		}
	}
	for r := range ListenerSecrets(x) {
		if l.next.Secrets[r.Name] == nil {
			wait(Part{Kind: KindSecrets, Name: r.Name}, Waiting{Timeout: r.Wait})
		}
	}
	return out
}

// resolve gives x with discovered filters filled in: x itself when there are
// none.
func (l *linker) resolve(x *config.Listener) *config.Listener {
	if !slices.ContainsFunc(Managers(x), needsWork) {
		return x
	}
	out := *x
	out.Chains = make([]*config.FilterChain, len(x.Chains))
	for i, c := range x.Chains {
		out.Chains[i] = l.chain(c)
	}
	if x.DefaultChain != nil {
		out.DefaultChain = l.chain(x.DefaultChain)
	}
	return &out
}

func needsWork(m *config.HTTPConnectionManager) bool {
	return slices.ContainsFunc(m.Filters, func(f config.HTTPFilter) bool { return f.Discovery != nil })
}

func (l *linker) chain(c *config.FilterChain) *config.FilterChain {
	out := *c
	out.Filters = slices.Clone(c.Filters)
	for i, f := range out.Filters {
		m, ok := f.(*config.HTTPConnectionManager)
		if !ok || !needsWork(m) {
			continue
		}
		linked := *m
		linked.Filters = slices.Clone(m.Filters)
		for j := range linked.Filters {
			l.discover(&linked.Filters[j])
		}
		out.Filters[i] = &linked
	}
	return &out
}

func (l *linker) discover(f *config.HTTPFilter) {
	if f.Discovery == nil {
		return
	}
	if p, ok := l.accepted.Extensions[f.Name]; ok {
		f.Policy = p
	} else {
		f.Policy = f.Discovery.Default
	}
}

// sameListener says that b would run exactly as a does: the same bytes and the
// same discovered filters.
func sameListener(a, b *config.Listener) bool {
	if a == b {
		return true
	}
	if a.Hash != b.Hash || a.Name != b.Name {
		return false
	}
	am, bm := Managers(a), Managers(b)
	return slices.EqualFunc(am, bm, func(x, y *config.HTTPConnectionManager) bool { return sameFilters(x.Filters, y.Filters) })
}

// sameFilters compares filter lists. Only discovered policies can differ under
// equal bytes.
func sameFilters(a, b []config.HTTPFilter) bool {
	return slices.EqualFunc(a, b, func(x, y config.HTTPFilter) bool {
		if x.Name != y.Name || x.Disabled != y.Disabled {
			return false
		}
		if x.Discovery == nil && y.Discovery == nil {
			return true
		}
		return x.Policy == y.Policy
	})
}
