package route

import "sluice/internal/config"

// indexFrom is the number of routes above which a virtual host gets an index.
const indexFrom = 12

// pathIndex narrows a long route list to the routes whose path can match. It
// keeps first-match order: candidates come in lists that are each in order, and
// the lowest position that matches wins.
type pathIndex struct {
	exact  map[string][]*Route
	prefix trie
	rest   []*Route // anything that isn't a case-sensitive exact or prefix
}

// trie maps prefixes to routes, one byte a level but for the compressed runs.
type trie struct {
	run    string
	routes []*Route
	next   [256]uint16 // 1-based in kids
	kids   []*trie
}

func newPathIndex(routes []*Route) *pathIndex {
	x := &pathIndex{exact: make(map[string][]*Route)}
	for _, r := range routes {
		m := &r.Config.Match
		switch {
		case m.Kind == config.PathExact && !m.IgnoreCase:
			x.exact[m.Path] = append(x.exact[m.Path], r)
		case (m.Kind == config.PathPrefix || m.Kind == config.PathSeparated) && !m.IgnoreCase:
			x.prefix.add(m.Path, r)
		default:
			x.rest = append(x.rest, r)
		}
	}
	return x
}

func (n *trie) add(p string, r *Route) {
	if p == "" {
		n.routes = append(n.routes, r)
		return
	}
	if i := n.next[p[0]]; i != 0 {
		kid := n.kids[i-1]
		common := 0
		for common < len(kid.run) && common < len(p) && kid.run[common] == p[common] {
			common++
		}
		if common < len(kid.run) { // split the run
			top := &trie{run: kid.run[:common]}
			kid.run = kid.run[common:]
			top.kids = []*trie{kid}
			top.next[kid.run[0]] = 1
			n.kids[i-1] = top
			kid = top
		}
		kid.add(p[common:], r)
		return
	}
	n.kids = append(n.kids, &trie{run: p, routes: []*Route{r}})
	n.next[p[0]] = uint16(len(n.kids))
}

func (x *pathIndex) find(q *Request, path, query []byte) *Route {
	best := better(nil, x.exact[str(path)], q, path, query)
	n, rest := &x.prefix, path
	for {
		best = better(best, n.routes, q, path, query)
		if len(rest) == 0 || n.next[rest[0]] == 0 {
			break
		}
		n = n.kids[n.next[rest[0]]-1]
		if len(rest) < len(n.run) || string(rest[:len(n.run)]) != n.run {
			break
		}
		rest = rest[len(n.run):]
	}
	return better(best, x.rest, q, path, query)
}

// better gives the first of routes that matches when it comes before best.
func better(best *Route, routes []*Route, q *Request, path, query []byte) *Route {
	for _, r := range routes {
		if best != nil && r.order > best.order {
			return best
		}
		if r.matches(q, path, query) {
			return r
		}
	}
	return best
}
