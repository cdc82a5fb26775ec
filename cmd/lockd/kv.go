package main

import (
	"github.com/urfave/cli/v3"
)

func kvCommand() *cli.Command {
	return &cli.Command{
		Name:     "kv",
		Category: atServer,
		Usage:    "read and write keys",
		Action:   noCommand,
		Commands: []*cli.Command{
			kvGetCommand(),
			kvPutCommand(),
			kvDeleteCommand(),
			kvListCommand(),
			kvExportCommand(),
			kvImportCommand(),
		},
	}
}
