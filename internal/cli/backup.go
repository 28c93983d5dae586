package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/backup"
	"github.com/allodhq/allod/internal/cloud"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site/sqlite"
)

// What backups are refused with, besides package backup's own refusals.
var (
	ErrNothing = refusal.NewKind("backup-nothing", 404,
		"There is no database of a site or a controller in this folder.",
		"Give the folder that the site or the controller was started with as --data.")
	ErrParties = refusal.NewKind("backup-parties", 409,
		"The folder has the databases of a site and of a controller, and each belongs into a folder of its own.",
		"Move one of them, with its key files, into another folder.")
	ErrNoArchive = refusal.NewKind("backup-absent", 404,
		"There is no archive at this path.",
		"Check the path of the archive.")
	ErrOutput = refusal.NewKind("backup-output", 409,
		"The archive cannot be made at this path: there is a file already, or the folder is not to be written.",
		"Choose a path where no file is, in a folder that this user can write.")
)

// The files of a site's folder.
const (
	siteDatabase = sqlite.DatabaseFile
	siteKeys     = sqlite.KeyFile
	appKeyFile   = "app-key"
)

type backupReport struct {
	Archive string   `json:"archive"`
	Parts   []string `json:"parts"`
	// RecoveryKey is shown the first time only.
	RecoveryKey string `json:"recoveryKey,omitzero"`
}

func newBackup(env Env) *cobra.Command {
	var data, out string
	var keyFiles []string
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Write one encrypted archive of a site's or a controller's data",
		Long: `Writes the database and the key files of a site or a controller into one archive,
sealed to a recovery key. The first backup makes that key and shows it once: write it
down. Without it no archive can be read, and with it every one can. Whose folder it is
the command sees by itself; the site or the controller must not run meanwhile.`,
		Example: "  allod backup --data /var/lib/allod --key-file /etc/allod/site-keys.json --out site-2026-11.backup\n" +
			"  allod backup --data /var/lib/allod-controller --out controller-2026-12.backup",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if data == "" || out == "" {
				return ErrUsage.With("The flags --data and --out are needed.")
			}
			return writeBackup(cmd.Context(), data, out, keyFiles, func(r backupReport) error {
				return print(cmd, env, r, func(w io.Writer) error { return writeBackupReport(w, r) })
			})
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "the folder of the site or the controller")
	cmd.Flags().StringVar(&out, "out", "", "the archive to write; it must not exist")
	cmd.Flags().StringArrayVar(&keyFiles, "key-file", nil, "a site's key file that lies elsewhere than in the folder; may be repeated")
	return cmd
}

// writeBackup writes an archive and shows what it did. A new recovery key is
// kept only when both have succeeded: a key that nobody has seen opens nothing.
func writeBackup(ctx context.Context, data, out string, keyFiles []string, show func(backupReport) error) error {
	party, err := partyOf(data)
	if err != nil {
		return err
	}
	if party == cloud.Party && len(keyFiles) > 0 {
		return ErrUsage.With("The flag --key-file is for a site; a controller's keys lie in its folder.")
	}
	release, err := datadir.Lock(data)
	if err != nil {
		return err
	}
	defer release()
	scratch, err := os.MkdirTemp(data, "backup-")
	if err != nil {
		return backup.ErrFiles.Because(err)
	}
	defer os.RemoveAll(scratch)
	var parts []backup.Part
	if party == cloud.Party {
		parts, err = cloud.Parts(ctx, data, scratch)
	} else {
		parts, err = siteParts(ctx, data, scratch, keyFiles)
	}
	if err != nil {
		return err
	}
	recovery, err := backup.LoadRecovery(data)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return ErrOutput.Because(err)
	}
	err = backup.Write(f, recovery.To, party, time.Now(), parts)
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		r := backupReport{Archive: out, RecoveryKey: recovery.ShownOnce()}
		for _, p := range parts {
			r.Parts = append(r.Parts, p.Name)
		}
		err = show(r)
	}
	if err != nil {
		_ = os.Remove(out)
		return err
	}
	return recovery.Keep()
}

// partyOf says whose folder it is. It returns [ErrNothing] and [ErrParties].
func partyOf(data string) (string, error) {
	site, controller := exists(filepath.Join(data, siteDatabase)), exists(filepath.Join(data, cloud.Database))
	switch {
	case site && controller:
		return "", ErrParties
	case site:
		return sqlite.Name, nil
	case controller:
		return cloud.Party, nil
	}
	return "", ErrNothing
}

// siteParts are a consistent copy of the database and the key files.
func siteParts(ctx context.Context, data, scratch string, keyFiles []string) ([]backup.Part, error) {
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(data, siteDatabase)})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	copied := filepath.Join(scratch, siteDatabase)
	if err := store.Backup(ctx, copied); err != nil {
		return nil, err
	}
	parts := []backup.Part{{Name: siteDatabase, Path: copied}}
	if own := filepath.Join(data, appKeyFile); exists(own) {
		parts = append(parts, backup.Part{Name: appKeyFile, Path: own})
	}
	if own := filepath.Join(data, siteKeys); exists(own) {
		keyFiles = append([]string{own}, keyFiles...)
	}
	for i, path := range keyFiles {
		name := siteKeys
		if i > 0 {
			name = "site-keys-" + strconv.Itoa(i+1) + ".json"
		}
		parts = append(parts, backup.Part{Name: name, Path: path})
	}
	return parts, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func writeBackupReport(w io.Writer, r backupReport) error {
	text := fmt.Sprintf("Wrote %s.\n", strings.Join(r.Parts, ", "))
	if r.RecoveryKey != "" {
		text += fmt.Sprintf("\nThe recovery key, shown this once. Write it down and keep it elsewhere:\n\n  %s\n\n"+
			"Without it no backup of this folder can be read; with it every one can.\n", r.RecoveryKey)
	}
	_, err := io.WriteString(w, text)
	return err
}

type restoreReport struct {
	Party   string    `json:"party"`
	Created time.Time `json:"created"`
	Files   []string  `json:"files"`
}

func newRestore(env Env) *cobra.Command {
	var in, data string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Put a backup back into an empty folder",
		Long: `Puts a backup back into a folder that is empty or does not exist. The recovery key
is read from standard input, so that it stands in no command line and no history.`,
		Example: "  allod restore --in site-2026-11.backup --data /var/lib/allod < recovery-key.txt",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if in == "" || data == "" {
				return ErrUsage.With("The flags --in and --data are needed.")
			}
			f, err := os.Open(in)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return ErrNoArchive
			case err != nil:
				return backup.ErrFiles.Because(err)
			}
			defer f.Close()
			fmt.Fprintln(env.Err, "Recovery key:")
			line, err := bufio.NewReader(io.LimitReader(env.In, 4096)).ReadString('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				return backup.ErrRecoveryKey.Because(err)
			}
			m, err := backup.Restore(f, strings.TrimSpace(line), data)
			if err != nil {
				return err
			}
			r := restoreReport{Party: m.Party, Created: m.Created}
			for _, f := range m.Files {
				r.Files = append(r.Files, f.Name)
			}
			return print(cmd, env, r, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "Restored %s of a %s, as of %s.\nStart it with this folder as --data.\n",
					strings.Join(r.Files, ", "), r.Party, r.Created.Format(time.RFC3339))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&in, "in", "", "the archive")
	cmd.Flags().StringVar(&data, "data", "", "the folder to restore to; it must be empty or absent")
	return cmd
}
