package xdsclient

import (
	"iter"
	"slices"

	"sluice/internal/config"
	"sluice/xdsclient/link"
)

// What is needed by name is what the accepted resources name, and what those in
// force do: a cluster or listener that serves while its next version waits goes
// on with its own endpoints, route table, secrets and filters.

// neededClusters visits the clusters whose names are to be kept; some twice.
func (c *Client) neededClusters(f func(*config.Cluster)) {
	c.eachCluster(f)
	if len(c.waiting) == 0 {
		return // all that is in force is accepted
	}
	for _, x := range c.snapshot.Clusters {
		f(x)
	}
}

// neededListeners is the same of listeners, the accepted ones first.
func (c *Client) neededListeners(f func(*config.Listener)) {
	c.eachListener(f)
	if len(c.waiting) == 0 {
		return
	}
	for _, x := range c.snapshot.Listeners {
		f(x)
	}
}

func (c *Client) eachCluster(f func(*config.Cluster)) {
	for _, x := range c.accepted.Static.Clusters {
		f(x)
	}
	for _, x := range c.accepted.Clusters {
		f(x)
	}
}

func (c *Client) eachListener(f func(*config.Listener)) {
	for _, x := range c.accepted.Static.Listeners {
		f(x)
	}
	for _, x := range c.accepted.Listeners {
		f(x)
	}
}

// endpointNames gives the assignments that clusters take.
func (c *Client) endpointNames() map[string]bool {
	out := map[string]bool{}
	c.neededClusters(func(x *config.Cluster) {
		if x.Type == config.EDS {
			out[x.EDSName] = true
		}
	})
	return out
}

// routeNames gives the route tables that come by name.
func (c *Client) routeNames() map[string]bool {
	out := map[string]bool{}
	c.neededListeners(func(x *config.Listener) {
		for _, m := range link.Managers(x) {
			if m.RouteName != "" {
				out[m.RouteName] = true
			}
		}
	})
	return out
}

// extensionNames gives the discovered filters in the order of their listeners.
func (c *Client) extensionNames() []string {
	var out []string
	c.neededListeners(func(x *config.Listener) {
		for _, m := range link.Managers(x) {
			for _, f := range m.Filters {
				if f.Discovery != nil && !slices.Contains(out, f.Name) {
					out = append(out, f.Name)
				}
			}
		}
	})
	return out
}

// secretNames gives the secrets that come by ADS; those of listeners only when
// asked for.
func (c *Client) secretNames(listeners bool) map[string]bool {
	out := map[string]bool{}
	add := func(refs iter.Seq[*config.SecretRef]) {
		for r := range refs {
			if r.Source == config.SecretADS {
				out[r.Name] = true
			}
		}
	}
	c.neededClusters(func(x *config.Cluster) { add(link.ClusterSecrets(x)) })
	if listeners {
		c.neededListeners(func(x *config.Listener) { add(link.ListenerSecrets(x)) })
	}
	return out
}
