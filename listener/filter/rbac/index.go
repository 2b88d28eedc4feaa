package rbac

import (
	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/route"
)

// index finds the alternatives that a subject can match by what it is. Each is
// listed under keys of which one must hold for it to match, or among those that
// are always looked at.
type index struct {
	always []int32
	// Lists by operand.
	path, serverName, principal, port, destination, direct, remote lists

	pseudo  []pseudoLists
	headers map[string]*lists
	lengths uint64 // of the names in headers: bit n%64
}

// pseudoLists are of a header that isn't among a head's fields.
type pseudoLists struct {
	name string
	lists
}

// lists are the alternatives of one operand, by the shape of their keys.
type lists []shape

// shape is all keys that are looked up alike.
type shape struct {
	kind config.StringKind
	fold bool
	n    int // bytes of a prefix or suffix
	at   map[string][]int32
}

// newIndex makes the index of alternatives, nil if none has keys.
func newIndex(list []config.RBACExpr) *index {
	x, n := &index{headers: map[string]*lists{}}, keyCounts{}
	n.count(list)
	for i := range list {
		keys, ok := n.of(&list[i])
		if !ok {
			x.always = append(x.always, int32(i))
			continue
		}
		for _, k := range keys {
			x.of(k.of).add(k, int32(i))
		}
	}
	if len(x.always) == len(list) {
		return nil
	}
	return x
}

// of gives the lists of an operand.
func (x *index) of(o operand) *lists {
	switch o.op {
	case config.RBACURLPath:
		return &x.path
	case config.RBACServerName:
		return &x.serverName
	case config.RBACAuthenticated:
		return &x.principal
	case config.RBACDestPort:
		return &x.port
	case config.RBACDestIP:
		return &x.destination
	case config.RBACDirectRemoteIP:
		return &x.direct
	case config.RBACRemoteIP:
		return &x.remote
	}
	return x.ofHeader(o.header)
}

func (x *index) ofHeader(name string) *lists {
	if _, pseudo := route.Pseudo(&httpmsg.Head{}, name); pseudo {
		return x.ofPseudo(name)
	}
	l := x.headers[name]
	if l == nil {
		l = &lists{}
		x.headers[name] = l
		x.lengths |= 1 << (len(name) % 64)
	}
	return l
}

func (x *index) ofPseudo(name string) *lists {
	for i := range x.pseudo {
		if x.pseudo[i].name == name {
			return &x.pseudo[i].lists
		}
	}
	x.pseudo = append(x.pseudo, pseudoLists{name: name})
	return &x.pseudo[len(x.pseudo)-1].lists
}

// add lists alternative i; they come in order.
func (l *lists) add(k key, i int32) {
	s := l.shape(k)
	list := s.at[k.value]
	if n := len(list); n == 0 || list[n-1] != i {
		s.at[k.value] = append(list, i)
	}
}

func (l *lists) shape(k key) *shape {
	n := len(k.value)
	if k.kind == config.MatchExact || k.kind == config.MatchContains {
		n = 0
	}
	for i := range *l {
		if s := &(*l)[i]; s.kind == k.kind && s.fold == k.fold && s.n == n {
			return s
		}
	}
	*l = append(*l, shape{kind: k.kind, fold: k.fold, n: n, at: map[string][]int32{}})
	return &(*l)[len(*l)-1]
}
