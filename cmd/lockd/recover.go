package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
)

func recoverCommand() *cli.Command {
	return &cli.Command{
		Name:      "recover",
		Category:  onFile,
		Usage:     "write a backup of what can be read of a damaged file",
		ArgsUsage: "FILE TO",
		Description: "It has every key, node, service and check whose checksum holds, for lockd\n" +
			"restore to make a new file of. FILE may be damaged anywhere; it is only read, and\n" +
			"stays as it is.\n" +
			"What is missing in the backup, and what may be older than what was written last,\n" +
			"is listed on standard error, and the exit code is 5 then.\n" +
			"With -, the backup goes to standard output. Else TO is replaced as by lockd backup.",
		Flags: []cli.Flag{waitFlag()},
		Action: withFile(2, 2, func(
			_ context.Context, cmd *cli.Command, args []string, opts *lockd.Options,
		) error {
			var found *lockd.Recovery
			write := func(w io.Writer) (err error) {
				found, err = lockd.Recover(args[0], w, opts)
				return advisedOnFile(err)
			}
			if err := writeBackup(cmd, args[0], args[1], write); err != nil {
				return err
			}
			return report(cmd.Root().ErrWriter, found)
		}),
	}
}

// report lists what is missing or doubtful in the backup, and returns an error if anything is.
func report(w io.Writer, found *lockd.Recovery) error {
	for _, remark := range found.Missing {
		if _, err := fmt.Fprintf(w, "missing: %v\n", remark); err != nil {
			return err
		}
	}
	for _, remark := range found.Doubtful {
		if _, err := fmt.Fprintf(w, "doubtful: %v\n", remark); err != nil {
			return err
		}
	}
	if missing, doubtful := len(found.Missing), len(found.Doubtful); missing+doubtful > 0 {
		return fmt.Errorf("recover: %w: the backup is written, with %d keys; see above what is "+
			"missing, %d, and what is doubtful, %d", lockd.ErrCorrupt, found.Keys, missing,
			doubtful)
	}
	return nil
}
