package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// misspelt looks at the arguments that c will ignore: it names each on w, and
// refuses what must have been meant as a flag that changes nothing, or undoes.
func misspelt(c *cobra.Command, args []string, w io.Writer) error {
	for _, name := range unknown(c, args) {
		word := strings.TrimLeft(name, "-")
		for _, meant := range [...]string{"dry-run", "cleanup-only", "help", "version"} {
			if strings.HasPrefix(word, meant[:3]) {
				return fmt.Errorf("unknown flag %s: --%s?", name, meant)
			}
		}
		fmt.Fprintf(w, "ignoring unknown flag %s\n", name)
	}
	return nil
}

// unknown lists the flags among args that c hasn't got.
func unknown(c *cobra.Command, args []string) (names []string) {
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		switch {
		case a == "--":
			return names
		case strings.HasPrefix(a, "--"):
			if c.Flags().Lookup(name[2:]) == nil {
				names = append(names, name)
			}
		case len(a) > 1 && a[0] == '-' && c.Flags().ShorthandLookup(a[1:2]) == nil:
			names = append(names, name)
		}
	}
	return names
}
