/**
 * Esker, an embedded key-value engine for flash.
 *
 * <p>{@link dev.esker.Kvdb} is a database, and a {@link dev.esker.Kvs} in it an ordered map of bytes to bytes. The engine
 * runs in this process: its native library is in the jar. Linux on x86-64 and aarch64, with glibc.
 *
 * <p>No sequence of calls ends the virtual machine: a call on what is closed throws {@link dev.esker.EskerException} of
 * kind {@link dev.esker.EskerException.Kind#CLOSED}. Null throws {@link java.lang.NullPointerException}.
 */
package dev.esker;
