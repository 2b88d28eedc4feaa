package link

import (
	"maps"

	"sluice/internal/config"
)

// Routes is Next for a push of route tables only, when nothing waits: all but
// these stay as in previous, which it gives itself when nothing changed.
func Routes(previous *config.Snapshot, a *Accepted) *config.Snapshot {
	l := linker{previous: previous, accepted: a, next: &config.Snapshot{Routes: make(map[string]*config.RouteConfiguration, len(a.Routes))}}
	l.routes()
	if maps.Equal(l.next.Routes, previous.Routes) {
		return previous
	}
	next := *previous
	next.Routes = l.next.Routes
	if previous.Base == nil {
		next.Base, next.Clusters = previous, map[string]*config.Cluster{}
	}
	return &next
}

// routes enters every route table. Overrides of filters are the data path's
// affair: one table may serve connection managers with different filters.
func (l *linker) routes() {
	for name, r := range l.accepted.Routes {
		l.next.Routes[name] = r
	}
	for name, r := range l.accepted.Static.Routes {
		l.next.Routes[name] = r
	}
	for name, r := range l.next.Routes {
		if before := l.previous.Routes[name]; before != nil && before.Hash == r.Hash {
			l.next.Routes[name] = before
		}
	}
}
