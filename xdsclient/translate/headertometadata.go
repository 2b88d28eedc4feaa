package translate

import (
	"strings"

	tometadata "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"

	"sluice/internal/config"
)

func headerToMetadata(s scope, t typed) config.HTTPPolicy {
	var m tometadata.Config
	if !s.decode(t, &m) {
		return nil
	}
	return &config.HeaderToMetadata{
		Request:  s.metadataRules("request_rules", m.GetRequestRules()),
		Response: s.metadataRules("response_rules", m.GetResponseRules()),
	}
}

// routeHeaderToMetadata is the same message on a route, where it must say something.
func routeHeaderToMetadata(s scope, t typed) config.HTTPPolicy {
	p, _ := headerToMetadata(s, t).(*config.HeaderToMetadata)
	if p == nil {
		return nil
	}
	if len(p.Request)+len(p.Response) == 0 {
		s.bad("header_to_metadata_filter: Per filter configs must at least specify either request or response rules")
	}
	return p
}

func (s scope) metadataRules(field string, in []*tometadata.Config_Rule) []config.MetadataRule {
	var out []config.MetadataRule
	for i, m := range in {
		at := s.index(field, i)
		r := config.MetadataRule{Header: strings.ToLower(m.GetHeader()), Cookie: m.GetCookie(), Remove: m.GetRemove(),
			Present: at.at("on_header_present").metadataFrom(m.GetOnHeaderPresent()), Missing: at.at("on_header_missing").metadataFrom(m.GetOnHeaderMissing())}
		switch {
		case (r.Header == "") == (r.Cookie == ""):
			at.bad("exactly one of cookie and header must be specified")
		case r.Present == nil && r.Missing == nil:
			at.bad("header to metadata filter: rule for %s has neither `on_header_present` nor `on_header_missing` set", r.Header+r.Cookie)
		case r.Cookie != "" && r.Remove:
			at.at("remove").bad("Cannot specify remove for cookie")
		case r.Missing != nil && r.Missing.Value == "":
			at.at("on_header_missing").bad("Cannot specify on_header_missing rule with an empty value")
		}
		out = append(out, r)
	}
	return out
}

func (s scope) metadataFrom(m *tometadata.Config_KeyValuePair) *config.MetadataFrom {
	if m == nil {
		return nil
	}
	s.unsupported(m.GetType() == tometadata.Config_PROTOBUF_VALUE, "type", "protobuf values in headers")
	s.unsupported(m.GetEncode() != tometadata.Config_NONE, "encode", "encoded values in headers")
	out := &config.MetadataFrom{Namespace: m.GetMetadataNamespace(), Key: m.GetKey(), Value: m.GetValue(), Number: m.GetType() == tometadata.Config_NUMBER}
	if out.Namespace == "" {
		out.Namespace = "envoy.filters.http.header_to_metadata"
	}
	if r := m.GetRegexValueRewrite(); r != nil {
		if out.Value != "" {
			s.bad("Cannot specify both value and regex_value_rewrite")
		}
		out.Rewrite = s.at("regex_value_rewrite").rewrite(r)
	}
	return out
}
