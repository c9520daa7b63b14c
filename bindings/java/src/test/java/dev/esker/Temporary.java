package dev.esker;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Folders and processes that tests share. */
final class Temporary {
    private Temporary() {}

    static Options small() {
        return new Options().memory(32 << 20);
    }

    static Kvdb open(Path dir) {
        return Kvdb.open(dir, Kvdb.Mode.OPEN_OR_CREATE, small());
    }

    static byte[] b(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String s(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    static List<String> keys(RowIterator rows) {
        List<String> keys = new ArrayList<>();
        try (rows) {
            while (rows.hasNext()) {
                keys.add(s(rows.next().key()));
            }
        }
        return keys;
    }

    /** Runs {@link Child} in a virtual machine of its own. */
    static Process child(String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx64m", "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")), "dev.esker.Child"));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }
}
