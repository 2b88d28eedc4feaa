package httpproxy

// charge counts a response of the request's cluster, its own or one made in its
// place, for the cluster, the virtual cluster and the route's stat_prefix.
func (r *request) charge(code int) {
	r.cluster.Count(code, r.internal)
	v, p := r.statNames()
	if v == "" && p == "" {
		return
	}
	g := r.local.set.Named("vhost", r.rec.VirtualHost)
	if v != "" {
		g.Code("vcluster."+v+".upstream_rq_", code)
	}
	if p != "" {
		g.Code("route."+p+".upstream_rq_", code)
	}
}

// count counts what happened to a request, for its virtual cluster and its
// route's stat_prefix.
func (r *request) count(what string) {
	v, p := r.statNames()
	if v == "" && p == "" {
		return
	}
	g := r.local.set.Named("vhost", r.rec.VirtualHost)
	if v != "" {
		g.Inc("vcluster." + v + ".upstream_rq_" + what)
	}
	if p != "" {
		g.Inc("route." + p + ".upstream_rq_" + what)
	}
}

// statNames are the virtual cluster and the stat_prefix that count the request,
// "" for none. What fits no virtual cluster is "other".
func (r *request) statNames() (virtual, prefix string) {
	if r.route == nil {
		return "", ""
	}
	virtual, prefix = r.rec.VirtualCluster, r.route.Config.StatPrefix
	if virtual == "" && len(r.route.Host.Config.VirtualClusters) > 0 {
		virtual = "other"
	}
	return virtual, prefix
}
