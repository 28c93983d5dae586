package cli

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/wire/ai/protocol"
)

type versionReport struct {
	Version   string   `json:"version"`
	Platform  string   `json:"platform"`
	Go        string   `json:"go"`
	Protocols []string `json:"aiProtocols"`
}

func newVersion(env Env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version and the protocols this program speaks",
		Example: "  allod version --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionReport{env.Version, runtime.GOOS + "/" + runtime.GOARCH, runtime.Version(), protocol.Supported()}
			return print(cmd, env, v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "allod %s %s %s\nAI protocol versions: %s\n",
					v.Version, v.Platform, v.Go, strings.Join(v.Protocols, ", "))
				return err
			})
		},
	}
}
