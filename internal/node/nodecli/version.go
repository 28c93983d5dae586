package nodecli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/command"
	"github.com/allodhq/allod/internal/node/bundle"
	"github.com/allodhq/allod/wire/zone"
)

type versionReport struct {
	Version  string `json:"version"`
	Platform string `json:"platform"`
	Go       string `json:"go"`
	// Release is that of the contract which the program speaks.
	Release string `json:"zoneRelease"`
	// Digest is the SHA-256 of the program, as reports have it.
	Digest string `json:"digest,omitempty"`
}

func (n *node) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, and the digest of this program",
		Example: "  allod-node version --json",
		Args:    command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := versionReport{Version: n.env.Version, Platform: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Release: zone.Release}
			if own, err := bundle.Own(n.stamp); err == nil {
				v.Digest = own.Digest.String()
			}
			return command.Print(c, n.env, v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "allod-node %s %s %s\nzone release: %s\n", v.Version, v.Platform, v.Go, v.Release)
				if err == nil && v.Digest != "" {
					_, err = fmt.Fprintf(w, "SHA-256: %s\n", v.Digest)
				}
				return err
			})
		},
	}
}
