package link

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
