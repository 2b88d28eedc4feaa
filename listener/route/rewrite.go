package route

import (
	"bytes"
	"strconv"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

// Rewrite applies the route's path and host rewrites to the request's head.
// keepOriginal says whether x-envoy-original-path and -host are added; buf is
// scratch.
func (r *Route) Rewrite(h *httpmsg.Head, weighted int, keepOriginal bool, eval Eval, buf []byte) []byte {
	buf = r.rewriteHost(h, weighted, keepOriginal, eval, buf)
	a := r.Config.Action
	if a.PrefixRewrite == "" && a.RegexRewrite == nil && a.PathTemplate == "" {
		return buf
	}
	buf = r.newPath(buf[:0], h.Path())
	if len(buf) == 0 {
		return buf
	}
	if keepOriginal {
		h.Set(httpmsg.XEnvoyOriginalPath, h.Path())
	}
	h.SetPath(buf)
	return buf
}

// newPath appends the rewritten :path to dst; nothing when the rewrite comes
// out empty.
func (r *Route) newPath(dst, full []byte) []byte {
	a := r.Config.Action
	path, _ := SplitPath(full)
	rest := full[len(path):]
	switch {
	case a.PrefixRewrite != "":
		dst = append(dst, a.PrefixRewrite...)
		return append(dst, full[r.matched(path):]...)
	case a.RegexRewrite != nil:
		new := a.RegexRewrite.Regex.ReplaceAll(path, []byte(a.RegexRewrite.Substitution))
		if len(new) == 0 {
			return dst
		}
		return append(append(dst, new...), rest...)
	}
	m := &r.Config.Match
	if m.Regex == nil {
		return dst
	}
	idx := m.Regex.FindSubmatchIndex(path)
	if idx == nil {
		return dst
	}
	return append(m.Regex.Expand(dst, r.template, path, idx), rest...)
}

// matched is how much of path a prefix rewrite replaces.
func (r *Route) matched(path []byte) int {
	switch r.Config.Match.Kind {
	case config.PathPrefix, config.PathSeparated:
		return len(r.Config.Match.Path)
	}
	return len(path)
}

func (r *Route) rewriteHost(h *httpmsg.Head, weighted int, keepOriginal bool, eval Eval, buf []byte) []byte {
	a := r.Config.Action
	switch {
	case weighted >= 0 && weighted < len(a.Weighted) && a.Weighted[weighted].HostRewrite != "":
		buf = append(buf[:0], a.Weighted[weighted].HostRewrite...)
	case a.HostRewrite != "":
		buf = append(buf[:0], a.HostRewrite...)
	case a.HostFormat != nil:
		buf = eval(buf[:0], a.HostFormat)
	case a.HostRewriteHeader != "":
		v, _ := h.Value(a.HostRewriteHeader)
		buf = append(buf[:0], v...)
	case a.HostRewriteRegex != nil:
		path, _ := SplitPath(h.Path())
		buf = append(buf[:0], a.HostRewriteRegex.Regex.ReplaceAll(path, []byte(a.HostRewriteRegex.Substitution))...)
	default:
		return buf
	}
	if len(buf) > 0 {
		SetHost(h, buf, a.AppendXFH, keepOriginal)
	}
	return buf
}

// SetHost replaces the authority. appendXFH adds the old one to
// x-forwarded-host unless it is its last entry; keepOriginal adds
// x-envoy-original-host.
func SetHost(h *httpmsg.Head, host []byte, appendXFH, keepOriginal bool) {
	old := h.Authority()
	if appendXFH && len(old) > 0 {
		last := h.Get(httpmsg.XForwardedHost)
		if i := bytes.LastIndexByte(last, ','); i >= 0 {
			last = bytes.TrimSpace(last[i+1:])
		}
		if !bytes.Equal(last, old) {
			h.AppendComma(httpmsg.XForwardedHost, old)
		}
	}
	if keepOriginal {
		h.Set(httpmsg.XEnvoyOriginalHost, old)
	}
	h.SetAuthority(host)
}

// Location appends the target of the route's redirect to dst. https is the
// scheme that x-forwarded-proto tells.
func (r *Route) Location(dst []byte, h *httpmsg.Head, https bool) []byte {
	d := r.Config.Redirect
	scheme := d.Scheme
	switch {
	case scheme != "":
	case d.HTTPS:
		scheme = "https"
	case https:
		scheme = "https"
	default:
		scheme = "http"
	}
	dst = append(append(dst, scheme...), "://"...)
	if d.Host != "" {
		dst = append(dst, d.Host...)
	} else {
		dst = append(dst, redirectHost(h.Authority(), scheme, https, d.Port != 0)...)
	}
	if d.Port != 0 {
		dst = strconv.AppendUint(append(dst, ':'), uint64(d.Port), 10)
	}
	return r.redirectPath(dst, h.Path())
}

// redirectHost drops the port when the redirect sets one, or when the scheme
// changes and the port was the old scheme's own.
func redirectHost(host []byte, scheme string, https, newPort bool) []byte {
	bare := StripPort(host)
	port := string(host[len(bare):])
	old, own := "http", ":80"
	if https {
		old, own = "https", ":443"
	}
	if newPort || scheme != old && port == own {
		return bare
	}
	return host
}

func (r *Route) redirectPath(dst, full []byte) []byte {
	d := r.Config.Redirect
	path, query := SplitPath(full)
	rest := full[len(path):]
	start := len(dst)
	switch {
	case d.Path != "":
		if d.Path[0] != '/' {
			dst = append(dst, '/')
		}
		dst = append(dst, d.Path...)
		if bytes.IndexByte(dst[start:], '?') >= 0 {
			rest = nil
		}
	case d.PrefixRewrite != "":
		dst = append(append(dst, d.PrefixRewrite...), path[r.matched(path):]...)
	case d.RegexRewrite != nil:
		dst = append(dst, d.RegexRewrite.Regex.ReplaceAll(path, []byte(d.RegexRewrite.Substitution))...)
	default:
		dst = append(dst, path...)
	}
	if !d.StripQuery && (len(rest) > 0 || query != nil) {
		dst = append(dst, rest...)
	}
	return dst
}
