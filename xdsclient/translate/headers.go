//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"maps"
	"slices"
	"strings"

	mutation "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"sluice/internal/config"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// mutations converts headers to add and to remove. Envoy removes first, then
// adds, and refuses both for :-prefixed headers and Host.
func (s scope) mutations(add, remove string, adds []*core.HeaderValueOption, removes []string) []config.HeaderMutation {
	var out []config.HeaderMutation
	for i, name := range removes {
		name = strings.ToLower(name)
		if protectedHeader(name) {
			s.index(remove, i).bad(":-prefixed or host headers may not be removed")
		}
		out = append(out, config.HeaderMutation{Remove: name})
	}
	for i, a := range adds {
		m := s.index(add, i).headerOption(a)
		if protectedHeader(m.Name) {
			s.index(add, i).bad(":-prefixed or host headers may not be modified")
		}
		out = append(out, m)
	}
	return out
}

func protectedHeader(name string) bool {
	return name == "host" || strings.HasPrefix(name, ":")
}

func (s scope) headerOption(a *core.HeaderValueOption) config.HeaderMutation {
	out := config.HeaderMutation{
		Name:      strings.ToLower(a.GetHeader().GetKey()),
		Action:    config.HeaderAppendAction(a.GetAppendAction()),
		KeepEmpty: a.GetKeepEmptyValue(),
	}
	if a.GetAppend() != nil {
		if a.GetAppendAction() != core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD {
			s.bad("both append and append_action are set and it's not allowed")
		}
		out.Action = config.AppendOrAdd
		if !a.GetAppend().GetValue() {
			out.Action = config.OverwriteOrAdd
		}
	}
	value := a.GetHeader().GetValue()
	if raw := a.GetHeader().GetRawValue(); len(raw) > 0 {
		value = string(raw)
	}
	out.Value = s.at("header.value").format(value)
	return out
}

// mutationList converts the ordered mutations of filters.
func (s scope) mutationList(field string, in []*mutation.HeaderMutation) []config.HeaderMutation {
	var out []config.HeaderMutation
	for i, m := range in {
		at := s.index(field, i)
		switch x := m.GetAction().(type) {
		case *mutation.HeaderMutation_Remove:
			out = append(out, config.HeaderMutation{Remove: strings.ToLower(x.Remove)})
		case *mutation.HeaderMutation_Append:
			h := at.at("append").headerOption(x.Append)
			if protectedHeader(h.Name) {
				at.at("append").bad(":-prefixed or host headers may not be modified")
			}
			out = append(out, h)
		default:
			at.bad("not supported yet: this kind of header mutation")
		}
	}
	return out
}
