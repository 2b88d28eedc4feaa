package xdsclient

import (
	"slices"

	"sluice/xdsclient/link"
)

// forget drops what was received of names that are given up. Their wait starts
// anew with whoever names them again: an answer that isn't held is none.
func (c *Client) forget(k *kindState, names []string) {
	for _, name := range names {
		delete(k.kept, name)
		switch k.kind {
		case eds:
			delete(c.accepted.Loads, name)
		case rds:
			delete(c.accepted.Routes, name)
			delete(c.accepted.Settled, link.Part{Kind: link.KindRoutes, Name: name})
		case sds:
			delete(c.accepted.Secrets, name)
			delete(c.accepted.Settled, link.Part{Kind: link.KindSecrets, Name: name})
		}
	}
	if k.kind == eds {
		c.unsettle(names)
	}
}

// unsettle forgets that assignments have answered; names are sorted.
func (c *Client) unsettle(assignments []string) {
	if len(assignments) == 0 {
		return
	}
	for p := range c.accepted.Settled {
		if _, gone := slices.BinarySearch(assignments, p.Assignment); gone && p.Kind == link.KindEndpoints {
			delete(c.accepted.Settled, p)
		}
	}
}
