package main

import (
	"context"
	"errors"
	"io"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
)

func backupCommand() *cli.Command {
	return &cli.Command{
		Name:      "backup",
		Category:  onFile,
		Usage:     "write a backup of a file",
		ArgsUsage: "FILE [TO]",
		Description: "It has the keys with their values and flags, and the catalog;\n" +
			"no sessions, locks or delays. The file stays as it is.\n" +
			writable + "\n" +
			"Without TO, or with -, it goes to standard output.\n" +
			"A TO that exists is replaced when the backup is whole and on disk, if it is a\n" +
			"backup or empty; anything else there, such as a database, is refused.\n" +
			"If FILE is in use, the server at --http-addr is asked for the backup. It gives\n" +
			"one if FILE is the very file that it has open; else nothing is written.",
		Flags: clientFlags(waitFlag()),
		Action: withFile(1, 2, func(
			ctx context.Context, cmd *cli.Command, args []string, opts *lockd.Options,
		) error {
			to := append(args, standard)[1]
			write := func(w io.Writer) error {
				err := lockd.BackupFile(args[0], w, opts)
				if errors.Is(err, lockd.ErrInUse) { // then nothing is written yet
					return advisedOnCut(backupServed(ctx, cmd, args[0], w, err), to)
				}
				return advisedReading(err)
			}
			return writeBackup(cmd, args[0], to, write)
		}),
	}
}
